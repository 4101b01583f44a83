"""Images without a model. What their pixels become is tested in tests/trainers, where transformers is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from turnstile.reports.audit_images import ImageReader


def test_a_model_is_read_only_when_there_is_an_image() -> None:
    assert ImageReader(Path("nowhere"))._processor is None


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed here")
def test_no_package_of_the_audit_is_needed_to_import_it() -> None:
    assert importlib.util.find_spec("turnstile.reports.audit_images") is not None
