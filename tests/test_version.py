"""The version that the package says is the one that it is built with."""

from __future__ import annotations

from importlib.metadata import version

import turnstile
from turnstile.version import __version__


def test_the_package_says_the_version_that_it_was_built_with() -> None:
    assert turnstile.__version__ == __version__ == version("turnstile-rl")
