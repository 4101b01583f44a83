"""A sequence that has gone through a model, what can be asked of it, and what can be found wrong."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from turnstile.reports.audit_figures import Figures, Limits, Verdict
from turnstile.reports.audit_subject import NO_FILTER, Drawn, Filter
from turnstile.tokens import IdRun

CALMER = 0.1
"""A hypothesis that explains a fault leaves at most this share of k3."""
FEWEST = 4
"""Tokens that a hypothesis needs to be believed."""


class FaultKind(enum.StrEnum):
    """What was found to be wrong."""

    TOO_EARLY = "numbers_too_early"
    TOO_LATE = "numbers_too_late"
    OWN_POSITION = "logits_of_own_position"
    TEMPERATURE = "temperature"
    FILTER = "filter"
    WRONG_NUMBER = "wrong_number"
    WRONG_SAMPLED_ID = "wrong_sampled_id"
    WRONG_PROMPT_ID = "wrong_prompt_id"
    UNEXPLAINED = "unexplained"


class Finding(msgspec.Struct, frozen=True):
    """The fault of a sequence."""

    kind: FaultKind
    said: str
    """A sentence for people."""
    start: int | None = None
    """Token index at which it lies, or the first at which it can lie; None = everywhere."""
    end: int | None = None
    """Behind the last token index at which it can lie."""
    call: int | None = None
    """The call with which it begins."""
    token_id: int | None = None
    """The id that should stand there, where it was found."""
    temperature: float | None = None
    """The one that fits."""
    figures: Figures = Figures()
    """What is left once it is put right."""


class Asked(msgspec.Struct, frozen=True):
    """One number to compute: log-softmax of the logits behind token `row`, at id `target`."""

    row: int
    target: int
    temperature: float = 1.0
    filter: Filter = NO_FILTER
    kept: tuple[int, ...] = ()


class Run(Protocol):
    """A sequence that has gone through the model."""

    def logprobs(self, asked: list[Asked]) -> list[float]:
        """The numbers asked for; -inf where the filter or the kept set leaves the target out."""
        ...

    def ids_near(self, asked: Asked, logprob: float, most: int) -> list[int]:
        """At most so many ids whose number is nearest to `logprob`, nearest first; the target does not matter."""
        ...


Rerun = Callable[[IdRun], Run]
"""Runs the model on other ids in the place of the sequence's."""


def own_rows(drawn_D: Iterable[Drawn], token_ids: IdRun) -> list[Asked]:
    """What is asked for each token if all is as it should be."""
    return [
        Asked(each.at - 1, token_ids[each.at], each.temperature, each.filter, each.kept)
        for each in drawn_D
        if each.at > 0
    ]


def is_explained_by(left: Figures, before: Figures, limits: Limits) -> bool:
    """Whether what a hypothesis leaves of the differences is so much less that it must be true."""
    if left.tokens < min(FEWEST, before.tokens):
        return False
    verdict = left.verdict(limits)
    if before.verdict(limits) is Verdict.ENGINE_NOISE:
        # Noise explains itself; only numbers that fit to the last digit show that it is none.
        return verdict is Verdict.EXACT
    return verdict in (Verdict.EXACT, Verdict.ENGINE_NOISE) and left.k3 <= CALMER * before.k3
