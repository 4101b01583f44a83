from __future__ import annotations

import msgspec
import pytest

from turnstile.trajectory.call_shapes import SamplingInfo, snap


def test_settings_are_float32_in_their_shortest_decimal_form():
    settings = SamplingInfo(temperature=0.699999988079071, top_p=0.1, seed=3)
    assert (settings.temperature, settings.top_p, settings.min_p, settings.seed) == (0.7, 0.1, None, 3)
    assert SamplingInfo(temperature=1.0) == msgspec.structs.replace(settings, temperature=1.0, top_p=None, seed=None)


def test_what_no_float32_can_hold_is_refused():
    with pytest.raises(ValueError, match="is no float32"):
        snap(SamplingInfo(temperature=1.0), ["temperature"]) or SamplingInfo(temperature=1e39)
