"""Bridges written by hand for one family, by other packages: what a plug-in has to be able to do.

Source: docs/decisions/0017. A hand-written bridge is right for its revision of a template; whether that is the one that
is served is what `turnstile.templates.checks_plugins` finds out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from turnstile.conversation import JsonText, Message
from turnstile.templates.served import Served
from turnstile.tokens import IdRun


class Crossed(msgspec.Struct, frozen=True):
    """An answer that is held and what follows it, as a plug-in is asked. Shapes: prompt_T [P], sampled_S [S]."""

    prompt_T: IdRun
    """What the engine was fed for the answer."""
    sampled_S: IdRun
    new_M: tuple[Message, ...]
    tools: tuple[JsonText, ...]


class Variant(Protocol):
    """One family's bridge."""

    @property
    def name(self) -> str:
        """The plug-in's own name for the family."""
        ...

    def next_prompt(self, crossed: Crossed) -> IdRun | None:
        """The ids of the whole next prompt; None if it refuses, or fails in any way."""
        ...


class Plugin(Protocol):
    """A package with bridges for some families."""

    @property
    def name(self) -> str:
        """Of the package."""
        ...

    def is_installed(self) -> bool:
        """Whether it can be imported."""
        ...

    def variants(self, served: Served) -> Iterable[Variant]:
        """Its bridges whose control tokens this vocabulary has; only asked if it is installed."""
        ...
