"""`import turnstile`."""

from __future__ import annotations

import subprocess
import sys

import pytest

import turnstile


@pytest.mark.parametrize("name", turnstile.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(turnstile, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        turnstile.nothing  # noqa: B018 - the access is what is tested


def test_importing_turnstile_loads_neither_server_nor_arrow() -> None:
    program = (
        "import sys, turnstile; sys.exit(any(name in sys.modules for name in ('uvicorn', 'pyarrow', 'starlette')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
