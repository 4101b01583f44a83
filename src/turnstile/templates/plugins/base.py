"""Bridges written by hand for one family, by other packages: what a plug-in has to be able to do.

Source: docs/decisions/0017. A hand-written bridge is right for its revision of a template; whether that is the one that
is served is what `turnstile.templates.checks_plugins` finds out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from turnstile.templates.second_opinion import Variant
from turnstile.templates.served import Served


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
