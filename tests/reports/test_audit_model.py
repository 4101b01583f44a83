"""What stands in the way of a model. What it computes is tested in tests/trainers, where transformers is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from turnstile.errors import CallerError
from turnstile.reports.audit_model import load_model


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="nowhere is no model") as refused:
        load_model(tmp_path / "nowhere")
    assert refused.value.code == "audit_model_unreadable"


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed here")
def test_without_torch_the_remedy_is_the_extra_that_brings_it(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="needs the package torch") as refused:
        load_model(tmp_path)
    assert refused.value.code == "audit_packages_missing"
    assert "`pip install 'turnstile-rl[audit]'`" in refused.value.remedy
