"""Turnstile: exact token trajectories from agents that speak text.

Public names: `Client`, `RolloutHandle`, `convert`, `read`, `serve` and the errors. Everything else is private.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from turnstile.version import __version__ as __version__

if TYPE_CHECKING:
    from turnstile.client import Client, RolloutHandle
    from turnstile.errors import CallerError, EngineError, StoreError, TurnstileError
    from turnstile.server.local import serve
    from turnstile.trajectory.converters.conversion import convert
    from turnstile.trajectory.files import read

__all__ = [
    "CallerError",
    "Client",
    "EngineError",
    "RolloutHandle",
    "StoreError",
    "TurnstileError",
    "convert",
    "read",
    "serve",
]

_HOMES = {
    "Client": "turnstile.client",
    "RolloutHandle": "turnstile.client",
    "CallerError": "turnstile.errors",
    "EngineError": "turnstile.errors",
    "StoreError": "turnstile.errors",
    "TurnstileError": "turnstile.errors",
    "convert": "turnstile.trajectory.converters.conversion",
    "read": "turnstile.trajectory.files",
    "serve": "turnstile.server.local",
}


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for: a trainer that reads files needs no server."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'turnstile' has no attribute {name!r}")
    return getattr(import_module(home), name)
