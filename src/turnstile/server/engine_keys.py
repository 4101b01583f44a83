"""Which engine is sent which key: one for all of them, or one that is bound to one engine's address."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import final

from turnstile.errors import CallerError

ENGINE_API_KEY = "TURNSTILE_ENGINE_API_KEY"
"""Variable of the environment with the key for every engine; a command line is seen in lists of processes."""
ENGINE_API_KEYS = "TURNSTILE_ENGINE_API_KEYS"
"""Variable of the environment with the keys of single engines."""
_KEY = re.compile(r"[!-~]+")


@final
class EngineKeys:
    """The operator's keys for engines, as the environment has them; never an agent's."""

    def __init__(self, for_all: str, by_name: Mapping[str, str]) -> None:
        """Hold keys.

        Args:
            for_all: sent to engines that have none of their own; empty = none.
            by_name: those of single engines, by the engine's name.
        """
        self._for_all = for_all
        self._by_name = dict(by_name)

    @classmethod
    def read(cls, for_all: str, listed: str, names: Sequence[str]) -> EngineKeys:
        """Take the keys of the settings `engine_api_key` and `engine_api_keys`.

        A key is listed with its engine's address, not by position: whoever puts the engines into another order sends
        no key to another engine.

        Args:
            for_all: one key, or nothing.
            listed: `NAME=KEY` with commas between several; NAME is an engine's host, port and path.
            names: of all engines.

        Raises: CallerError `key_unusable`, which shows no key.
        """
        pairs = [each.strip().partition("=") for each in listed.split(",") if each.strip()]
        found = {name.strip(): key for name, _, key in pairs}
        if len(found) < len(pairs):
            raise _unusable("names an engine twice", "Give one key for each engine")
        if unknown := sum(name not in names for name in found):
            problem = f"has {unknown} of {len(found)} entries for no engine that is served"
            raise _unusable(problem, f"Write HOST:PORT=KEY; HOST:PORT is one of {', '.join(names)}")
        if not all(_KEY.fullmatch(key) for key in (*found.values(), *filter(None, (for_all,)))):
            raise _unusable("has a key that no header can carry", "Use printable ASCII without spaces and commas")
        return cls(for_all, found)

    def of(self, name: str) -> str:
        """What the engine of that name is sent as a bearer token; empty = nothing."""
        return self._by_name.get(name, self._for_all)


def _unusable(problem: str, remedy: str) -> CallerError:
    return CallerError(f"TURNSTILE_ENGINE_API_KEYS {problem}", remedy, code="key_unusable", param="engine_api_keys")
