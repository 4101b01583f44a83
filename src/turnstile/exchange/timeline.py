"""Where the time of one call went: what it waited for, and what it cost us."""

from __future__ import annotations

import enum
import time
from collections.abc import Iterable
from typing import final

import msgspec


class Stage(enum.StrEnum):
    """What a call does, or waits for."""

    QUEUE = "queue"
    """It waits for its turn."""
    HOLD = "hold"
    """It waits at an engine's gate while weights are updated."""
    PLAN = "plan"
    """Its history is matched, its prompt rendered and spliced."""
    ENGINE = "engine"
    """A request of it runs on an engine."""
    STORE = "store"
    """It waits for the journal."""


WAITS = frozenset({Stage.QUEUE, Stage.HOLD, Stage.ENGINE})
"""What is not Turnstile's own time."""


class Span(msgspec.Struct, frozen=True, array_like=True):
    """A stage from one moment to another, in nanoseconds of `time.perf_counter_ns`."""

    stage: Stage
    began_ns: int
    ended_ns: int


@final
class _During:
    """A block that is a stage; a class, since a generator would cost each call several microseconds more."""

    __slots__ = ("_began_ns", "_spans", "_stage")

    def __init__(self, spans: list[Span], stage: Stage) -> None:
        self._spans = spans
        self._stage = stage
        self._began_ns = 0

    def __enter__(self) -> None:
        self._began_ns = time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        self._spans.append(Span(self._stage, self._began_ns, time.perf_counter_ns()))


@final
class Timeline:
    """The stages of one call, written by the task that runs it and read when it is over.

    Stages of a call's several choices overlap; `spent_ns` counts a moment once.
    """

    def __init__(self) -> None:
        self.began_ns = time.perf_counter_ns()
        self.spans: list[Span] = []
        self.first_token_ns: int | None = None
        """When the engine's first id came; None: none has."""
        self.handling_ns = 0
        """How long what came from an engine was parsed and handed on while its request ran: part of its stage, but
        Turnstile's own time."""
        self.landed_ns: int | None = None
        """When the call ended; None: it runs."""

    def stage(self, stage: Stage) -> _During:
        """Be in a stage for the length of the block."""
        return _During(self.spans, stage)

    def since(self, stage: Stage, began_ns: int) -> None:
        """Have been in a stage from that moment until now."""
        self.spans.append(Span(stage, began_ns, time.perf_counter_ns()))

    def handled(self, came_ns: int) -> None:
        """What came from the engine at that moment has been dealt with."""
        if self.first_token_ns is None:
            self.first_token_ns = came_ns
        self.handling_ns += time.perf_counter_ns() - came_ns

    def landed(self) -> None:
        """The call has ended; the first end counts."""
        if self.landed_ns is None:
            self.landed_ns = time.perf_counter_ns()

    def spent_ns(self, *stages: Stage) -> int:
        """How long the call was in any of some stages."""
        found = [each for each in self.spans if each.stage in stages]
        if len(found) == 1:
            return found[0].ended_ns - found[0].began_ns
        return _covered_ns((each.began_ns, each.ended_ns) for each in found)

    @property
    def first_token_after_ns(self) -> int | None:
        """From the first request to an engine to the first id of the answer; None if either never came."""
        asked = min((each.began_ns for each in self.spans if each.stage is Stage.ENGINE), default=None)
        return None if asked is None or self.first_token_ns is None else self.first_token_ns - asked

    @property
    def added_ns(self) -> int:
        """What Turnstile itself took, from the request's arrival to the call's end: all that was no wait for others."""
        ended_ns = self.landed_ns or time.perf_counter_ns()
        return max(0, ended_ns - self.began_ns - self.spent_ns(*WAITS)) + self.handling_ns


def _covered_ns(intervals: Iterable[tuple[int, int]]) -> int:
    covered = 0
    reached = 0
    for began, ended in sorted(intervals):
        covered += max(0, ended - max(began, reached))
        reached = max(reached, ended)
    return covered
