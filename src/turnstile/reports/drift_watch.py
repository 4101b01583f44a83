"""Drift while it happens: each answered call's prompt is compared in the background, and what cannot be is counted.

One thread, and a bounded number of calls that wait for it. The thread rests after each comparison, so that all of them
together take at most a part of one core; what comes while too many wait is not compared, and the figures say so.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import final

import msgspec

from turnstile.generation import Head
from turnstile.history.forest import Forest
from turnstile.reports.drift import Comparer, Difference, Figures, Run, of_run, total
from turnstile.reports.drift_sources import prompt_ids, prompt_of_call
from turnstile.templates.served import Served

WAITING_CALLS = 64
"""Calls that may wait to be compared."""
REST = 9.0
"""Rest after each comparison, as a multiple of the time that it took: at most a tenth of a core is used, and of what
Python runs at once. A comparison costs what rendering the whole conversation costs."""
KEPT_ROLLOUTS = 20_000
"""Rollouts whose figures are remembered, those that changed last."""

log = logging.getLogger("turnstile.drift")


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    """One attempt of a rollout."""

    rollout_id: str
    attempt: int


def attempt_of(forest: Forest) -> Attempt:
    """Which attempt a forest is of. Raises: ValueError if it has no rollout."""
    if forest.opened is None:
        raise ValueError("the forest has no rollout")
    return Attempt(forest.opened.rollout_id, forest.opened.attempt)


class Seen(msgspec.Struct, frozen=True):
    """What came of one answered call: `run` is None where it was not compared."""

    run: Run | None
    difference: Difference | None = None


class _Job(msgspec.Struct, frozen=True):
    attempt: Attempt
    head: Head
    run: Callable[[], Run]


@final
class DriftWatch:
    """Compares prompts away from whoever offers them; close it to end its thread."""

    def __init__(
        self,
        served: Callable[[Head], Served],
        waiting_calls: int = WAITING_CALLS,
    ) -> None:
        """Start watching.

        Args:
            served: finds the model behind a head.
            waiting_calls: how many may wait; a call that comes while so many do is not compared.
        """
        self._served = served
        self._hearers: list[Callable[[Seen], None]] = []
        self._jobs: queue.Queue[_Job | None] = queue.Queue(waiting_calls + 1)
        self._waiting_calls = waiting_calls
        self._figures: OrderedDict[Attempt, Figures] = OrderedDict()
        self._open: dict[Attempt, int] = {}
        self._changed = threading.Condition()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="turnstile-drift", daemon=True)
        self._thread.start()

    def __enter__(self) -> DriftWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def tell(self, hearer: Callable[[Seen], None]) -> None:
        """Let somebody hear of each call from now on, once, from any thread."""
        self._hearers.append(hearer)

    def answered(self, forest: Forest, call_id: str) -> None:
        """Offer a call whose answer has just become durable; called where the forest grows."""
        started = forest.calls[call_id].started
        prompt_T = prompt_ids(forest, started)
        run = partial(prompt_of_call, forest, started, prompt_T)
        self.offer(attempt_of(forest), forest.heads[started.head], run)

    def offer(self, attempt: Attempt, head: Head, run: Callable[[], Run]) -> None:
        """Compare a call's prompt some time soon, or count it as not compared; returns at once.

        Args:
            attempt: whose call it is.
            head: the head of its prompt.
            run: makes the prompt; called in the watch's thread.
        """
        with self._changed:
            if self._jobs.qsize() >= self._waiting_calls or self._ended.is_set():
                self._count(attempt, Seen(None))
                return
            self._open[attempt] = self._open.get(attempt, 0) + 1
        self._jobs.put(_Job(attempt, head, run))

    def figures(self, attempt: Attempt) -> Figures:
        """What is known of an attempt's calls by now; those before a restart are not among them."""
        with self._changed:
            return self._figures.get(attempt, Figures())

    def settled(self, attempt: Attempt, patience_s: float) -> Figures:
        """The same, once no call of the attempt waits any more, or patience has run out. Blocks."""
        with self._changed:
            self._changed.wait_for(lambda: attempt not in self._open or self._ended.is_set(), patience_s)
        return self.figures(attempt)

    def close(self) -> None:
        """Compare nothing more; waits for the comparison that runs."""
        self._ended.set()
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        comparer = Comparer()
        while (job := self._jobs.get()) is not None and not self._ended.is_set():
            began = time.perf_counter()
            seen = self._seen(comparer, job)
            with self._changed:
                self._count(job.attempt, seen)
                self._open[job.attempt] -= 1
                if not self._open[job.attempt]:
                    del self._open[job.attempt]
                self._changed.notify_all()
            self._ended.wait(REST * (time.perf_counter() - began))

    def _seen(self, comparer: Comparer, job: _Job) -> Seen:
        try:
            run = job.run()
            return Seen(run, comparer.difference(self._served(job.head), run))
        except Exception:
            # A boundary: the watch must go on, and what it could not compare is counted.
            log.exception("a prompt could not be compared", extra={"rollout_id": job.attempt.rollout_id})
            return Seen(None)

    def _count(self, attempt: Attempt, seen: Seen) -> None:
        one = of_run(seen.run, seen.difference) if seen.run is not None else Figures(calls=1)
        self._figures[attempt] = total((self._figures.get(attempt, Figures()), one))
        self._figures.move_to_end(attempt)
        while len(self._figures) > KEPT_ROLLOUTS:
            self._figures.popitem(last=False)
        for hearer in self._hearers:
            hearer(seen)
