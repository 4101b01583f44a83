"""The one thread that runs the model: requests join and leave between tokens, and so do new weights.

A request never waits for another's end. New weights are put in between two tokens, and the answers that are running
then are read anew under them, so each number is exactly what one version of the weights says of all that precedes it.
"""

from __future__ import annotations

import functools
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from images import Expanded
from model import TokenModel
from sampling import Dice, Sampling, draw
from weights import copy_weights, weights_sha256

from store import Prefixes, Running, Shown


@dataclass(frozen=True)
class Pace:
    """How requests are gathered."""

    gather_s: float = 0.015
    """An idle engine waits so long for one more request before it begins, and again after each that comes."""
    most: int = 64
    """Sequences that run at once; the rest wait."""
    prefill_tokens: int = 32768
    """Of prompts that are read together, padding included."""
    prefix_tokens: int = 65536
    """Of sequences that have ended, whose keys and values are kept for prompts that begin like them."""


@dataclass(frozen=True)
class Drawn:
    """One token of an answer; `finish` is empty while more come."""

    token_id: int
    logprob: float
    version: str
    finish: str


@dataclass(frozen=True)
class Broken:
    """The engine failed."""

    problem: str


class Listener(Protocol):
    """Told each token of all running requests, from the scheduler's thread."""

    def __call__(self, news: list[tuple[Job, Drawn | Broken]]) -> None: ...


@dataclass(eq=False)
class Job:
    """A request that runs or waits to."""

    prompt: Expanded
    sampling: Sampling
    stop_ids: frozenset[int]
    limit: int
    """Tokens of the answer."""
    told: Callable[[Drawn | Broken], None]
    """Called in the server's event loop."""
    is_given_up: bool = False
    """Nobody wants the rest of it. Set by the server, read between tokens."""
    ids: list[int] = field(default_factory=list)
    dice: Dice = field(init=False)

    def __post_init__(self) -> None:
        self.dice = Dice(self.sampling)

    @property
    def whole(self) -> Expanded:
        """Prompt and answer."""
        return replace(self.prompt, ids=[*self.prompt.ids, *self.ids])

    def finish_behind(self, token_id: int) -> str:
        if token_id in self.stop_ids:
            return "stop"
        return "length" if len(self.ids) >= self.limit else ""


@dataclass(frozen=True)
class Update:
    """New weights, read and checked; `done` is called when they are in."""

    tensors: dict[str, torch.Tensor]
    version: str
    done: Callable[[], None]


@dataclass(frozen=True)
class Stop:
    """End the thread."""


class Scheduler:
    """Owns the model while it runs."""

    def __init__(self, model: TokenModel, version: str, pace: Pace, listener: Listener) -> None:
        self.model = model
        self.version = version
        self.sampled = 0
        """Tokens since the start."""
        self._pace = pace
        self._listener = listener
        self._inbox: queue.SimpleQueue[Job | Update | Stop] = queue.SimpleQueue()
        self._waiting: list[Job] = []
        self._running: list[Job] = []
        self._rows: Running | None = None
        """Of `_running`, in its order."""
        self._prefixes = Prefixes(pace.prefix_tokens)
        self._last: list[int] = []
        """The token just drawn for each running job."""
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)

    @property
    def load(self) -> tuple[int, int]:
        """How many requests run and wait."""
        return len(self._running), len(self._waiting)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let go of what runs, and wait for the thread's end."""
        self._inbox.put(Stop())
        self._thread.join()

    def submit(self, item: Job | Update) -> None:
        """Take a request, or weights, at the next token."""
        self._inbox.put(item)

    @torch.inference_mode()
    def _work(self) -> None:
        while self._take_in():
            try:
                self._drop_given_up()
                self._admit()
                self._step()
            except Exception as problem:  # noqa: BLE001 - the thread must live on: every request is told
                self._break(f"{type(problem).__name__}: {problem}")

    def _take_in(self) -> bool:
        """Take what has come; False: stop. Waits while there is nothing to do."""
        is_idle = not self._running and not self._waiting
        deadline = None
        while True:
            try:
                if not is_idle:
                    item = self._inbox.get_nowait()
                elif deadline is None:
                    item = self._inbox.get()
                else:
                    item = self._inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return True
            match item:
                case Stop():
                    return False
                case Update():
                    self._update(item)
                case Job():
                    self._waiting.append(item)
                    deadline = time.monotonic() + self._pace.gather_s
            if is_idle and len(self._waiting) >= self._pace.most:
                return True

    def _update(self, update: Update) -> None:
        copy_weights(self.model.model, update.tensors)
        self.model.weights_sha256 = weights_sha256(self.model.model)
        self.version = update.version
        # What is kept and what runs was computed with the old weights: it is read again, the running first.
        self._prefixes.forget()
        self._waiting = [*self._running, *self._waiting]
        self._running, self._rows, self._last = [], None, []
        update.done()

    def _drop_given_up(self) -> None:
        self._waiting = [job for job in self._waiting if not job.is_given_up]
        self._drop([row for row, job in enumerate(self._running) if job.is_given_up])

    def _admit(self) -> None:
        """Read the prompts of as many waiting requests as there is room for, and draw the first token of each."""
        while self._waiting and (room := self._pace.most - len(self._running)) > 0:
            count = self._fitting(room)
            jobs, self._waiting = self._waiting[:count], self._waiting[count:]
            first = len(self._running)
            # Listed before anything can fail: whoever is in the list is told.
            self._running += jobs
            logits_BV, rows = self._read([job.whole for job in jobs])
            self._rows = rows if self._rows is None else self._rows.joined(rows)
            self._last += self._deliver(self._running[first:], logits_BV)
            self._drop_finished()

    def _read(self, prompts: list[Expanded]) -> tuple[torch.Tensor, Running]:
        """Run prompts; those that are alike once, and none from its beginning that begins like one before."""
        shown = [Shown(each.ids, each.ranges, each.digests) for each in prompts]
        keys = [(tuple(each.ids), tuple(each.digests)) for each in prompts]
        distinct = list({key: at for at, key in enumerate(keys)}.values())
        found = [self._prefixes.find(shown[at]) for at in distinct]
        logits_BV, rows = self.model.prefill([prompts[at] for at in distinct], found)
        for row, at in enumerate(distinct):
            self._prefixes.keep(shown[at], functools.partial(rows.sequence, row))
        if len(distinct) == len(prompts):
            return logits_BV, rows
        place = {keys[at]: row for row, at in enumerate(distinct)}
        index = [place[key] for key in keys]
        return logits_BV[index], rows.rows(index)

    def _fitting(self, room: int) -> int:
        longest = count = 0
        for job in self._waiting[:room]:
            longest = max(longest, len(job.prompt.ids) + len(job.ids))
            if count and longest * (count + 1) > self._pace.prefill_tokens:
                break
            count += 1
        return count

    def _step(self) -> None:
        if self._rows is None:
            return
        logits_BV = self.model.step(self._rows, self._last)
        self._last = self._deliver(self._running, logits_BV)
        self._drop_finished()

    def _deliver(self, jobs: list[Job], logits_BV: torch.Tensor) -> list[int]:
        """Draw a token for each job and tell it."""
        ids, logprobs = draw(logits_BV, [job.dice for job in jobs])
        news: list[tuple[Job, Drawn | Broken]] = []
        for job, token_id, logprob in zip(jobs, ids, logprobs, strict=True):
            job.ids.append(token_id)
            news.append((job, Drawn(token_id, logprob, self.version, job.finish_behind(token_id))))
        self.sampled += len(news)
        self._listener(news)
        return ids

    def _drop_finished(self) -> None:
        finished = [row for row, job in enumerate(self._running) if job.finish_behind(self._last[row])]
        for row in finished:
            job, rows = self._running[row], self._rows
            if rows is not None:
                # The last token was drawn and never run.
                ids = [*job.prompt.ids, *job.ids[:-1]]
                shown = Shown(ids, job.prompt.ranges, job.prompt.digests)
                self._prefixes.keep(shown, functools.partial(rows.sequence, row))
        self._drop(finished)

    def _drop(self, rows: list[int]) -> None:
        """Let requests go; the last one takes the place of each."""
        for row in reversed(rows):
            for each in (self._running, self._last):
                each[row] = each[-1]
                each.pop()
            if self._rows is not None:
                self._rows.remove(row)
        if not self._running:
            self._rows = None

    def _break(self, problem: str) -> None:
        jobs, self._running, self._rows, self._last = self._running, [], None, []
        self._listener([(job, Broken(problem)) for job in jobs])
