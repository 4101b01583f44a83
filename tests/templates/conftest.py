"""Models served with real tokenizers and templates."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from turnstile.templates.facts import Served, serve
from turnstile.templates.files import ModelFiles


@pytest.fixture(scope="session")
def served(family_files: Callable[[str], ModelFiles]) -> Callable[[str], Served]:
    """A family as it is served; skips, with the reason, where it cannot be had."""
    return cache(lambda name: serve(family_files(name), model=name))
