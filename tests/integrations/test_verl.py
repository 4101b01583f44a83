"""verl's agent loop without verl; with it, tests/trainers/test_verl.py."""

from __future__ import annotations

import importlib.util

import pytest

from turnstile.integrations.verl import agent_loop


@pytest.mark.skipif(importlib.util.find_spec("verl") is not None, reason="verl is installed here")
def test_verl_is_imported_when_its_loop_is_asked_for_and_not_before() -> None:
    with pytest.raises(ModuleNotFoundError, match="verl"):
        agent_loop("http://127.0.0.1:7000", lambda rollout, prompt: 1.0)
