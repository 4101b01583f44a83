"""What a call meets on its way."""

from __future__ import annotations

import pytest

from turnstile.exchange.world import World


def test_no_call_can_change_the_world_for_the_next_one(world: World) -> None:
    with pytest.raises(AttributeError):
        world.continuations = 1  # type: ignore[misc]
