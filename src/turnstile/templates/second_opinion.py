"""Asks another package's hand-written bridge for ids that ours has already given, where the two are known to agree.

Source: docs/decisions/0017. It confirms what ours gave, or is not asked again; no prompt is made of what it says.
"""

from __future__ import annotations

import logging
from typing import Protocol, final

import msgspec

from turnstile.conversation import JsonText, Message
from turnstile.templates.proofs import Pattern
from turnstile.tokens import IdRun, first_difference

log = logging.getLogger("turnstile.templates")


class Crossed(msgspec.Struct, frozen=True):
    """An answer that is held and what follows it, as a plug-in is asked. Shapes: prompt_T [P], sampled_S [S]."""

    prompt_T: IdRun
    """What the engine was fed for the answer."""
    sampled_S: IdRun
    new_M: tuple[Message, ...]
    tools: tuple[JsonText, ...]


class Declined(msgspec.Struct, frozen=True):
    """A plug-in gives no bridge."""

    problem: str = ""
    """What it raised; empty if it refuses by a rule of its own."""


class Variant(Protocol):
    """One family's bridge."""

    @property
    def name(self) -> str:
        """The plug-in's own name for the family."""
        ...

    def next_prompt(self, crossed: Crossed) -> IdRun | Declined:
        """The ids of the whole next prompt; never raises."""
        ...


@final
class SecondOpinion:
    """One plug-in's bridge for a served model. Threads may share it."""

    def __init__(self, plugin: str, variant: Variant, patterns: frozenset[Pattern]) -> None:
        """Ask it.

        Args:
            plugin: whose bridge it is, for the log.
            variant: the bridge.
            patterns: the requests for which the certificate's check found it to agree with ours.
        """
        self._name = f"{plugin} ({variant.name})"
        self._variant = variant
        self._patterns = patterns
        self._stopped: set[Pattern] = set()

    def is_asked(self, pattern: Pattern) -> bool:
        """Whether it agrees in such requests, as far as is known."""
        return pattern in self._patterns and pattern not in self._stopped

    def confirms(self, pattern: Pattern, asked: Crossed, ours_T: IdRun) -> bool:
        """Whether it gives the ids of our whole next prompt [T].

        One that raises or gives others is told in the log and not asked about the pattern again.
        """
        found = self._variant.next_prompt(asked)
        if found == ours_T:
            return True
        if isinstance(found, Declined):
            if found.problem:
                self._stop(pattern, f"raised {found.problem}")
            return False
        at = first_difference(found, ours_T)
        held = len(asked.prompt_T) + len(asked.sampled_S)
        whose = "an id that is held" if at is not None and at < held else "what follows what is held"
        self._stop(pattern, f"gave other ids than our bridge from index {at} on, {whose}")
        return False

    def _stop(self, pattern: Pattern, why: str) -> None:
        if pattern not in self._stopped:
            self._stopped.add(pattern)
            log.warning("%s %.300s; it is not asked about such requests again: %s", self._name, why, pattern)
