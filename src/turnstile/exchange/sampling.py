"""One choice from one engine: its gate, its policy version, and how it goes on where the engine gives it up.

An engine gives a call up when its weights are updated. What it had sampled may be taken up again: the same prompt
with those ids behind it, in another request. The client sees one answer, and the journal has one completion that
says where its requests join (public case L3, docs/decisions/0028).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import final

import msgspec

from turnstile.engines.pool import Seat
from turnstile.engines.stop_scan import StopScan
from turnstile.errors import EngineError
from turnstile.exchange.checks import verify
from turnstile.exchange.draws import SEED_SPACE
from turnstile.exchange.holding import Gate
from turnstile.exchange.image_checks import image_runs
from turnstile.exchange.images import Shown
from turnstile.exchange.joining import Part, cut, delta_of, joined, shortened
from turnstile.exchange.policy_log import Epoch, PolicyLog
from turnstile.exchange.policy_ranges import Ranges, Told, label_now, ranges_of
from turnstile.exchange.timeline import Stage, Timeline
from turnstile.generation import Delta, Draw, Emit, Finish, Generation, Note, Prompt
from turnstile.journal import EngineCall, PolicyRange
from turnstile.reasons import NoteCode
from turnstile.tokens import Segment, SegmentKind, Vocabulary, join

_PAUSE_S = 0.1
"""Before a request is sent again of which the engine sampled nothing; doubled at each further one."""
_LONGEST_PAUSE_S = 5.0


class Source(msgspec.Struct, frozen=True):
    """Where a choice is sampled."""

    seat: Seat
    gate: Gate
    policy: PolicyLog
    vocabulary: Vocabulary
    continuations: int
    """How many times a completion that the engine gives up is taken up again."""
    begin: Callable[[Epoch], None]
    """Told in which epoch of the policy the first request goes out, before anything is emitted."""
    times: Timeline = msgspec.field(default_factory=Timeline)
    """Told what was waited for."""


class Drawn(msgspec.Struct, frozen=True):
    """One completion, and how it came about."""

    generation: Generation
    tiles: tuple[PolicyRange, ...]
    """Which policy versions sampled which of its ids."""
    notes: tuple[Note, ...] = ()
    engine_calls: tuple[EngineCall, ...] = ()
    """The requests that it took; empty: one."""


async def drawn(source: Source, prompt: Prompt, draw: Draw, emit: Emit) -> Drawn:
    """Sample one completion, in as many requests as it takes.

    Args:
        source: the engine and what stands before it.
        prompt: what it is to run.
        draw: how it is to sample.
        emit: told of ids as they come, each once.

    Raises: as `Engine.generate`; EngineError `engine_aborted` with status 503 if the engine gave the completion up and
        it was not taken up again, `policy_hold_expired` if it was held for too long.
    """
    return await _Sampling(source, prompt, draw, emit).run()


def continued_seed(seed: int | None, request: int) -> int | None:
    """The seed of a completion's further requests, the second one's for 1: the same dice would repeat their throws."""
    if seed is None or request == 0:
        return seed
    digest = hashlib.sha256(f"{seed}:{request}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % SEED_SPACE


@final
class _Sampling:
    def __init__(self, source: Source, prompt: Prompt, draw: Draw, emit: Emit) -> None:
        self._source = source
        self._prompt = prompt
        self._draw = draw
        self._emit = emit
        self._parts: list[Part] = []
        self._calls: list[EngineCall] = []
        """One a request that has ended."""
        self._notes: list[Note] = []
        self._told_S = 0
        """Ids of the running request that were emitted."""
        self._scan: StopScan | None = None
        """From the second request on: looks for stop strings that begin in one request and end in another."""
        self._end_S: int | None = None
        """Where such a string ends the completion."""
        self._stop_string = ""

    async def run(self) -> Drawn:
        while True:
            part = await self._request()
            generation = part.generation
            if generation.finish is not Finish.ABORT:
                self._keep(part)
                break
            self._check_goes_on(part)
            if not _is_whole(generation):
                self._discard(generation)
            else:
                if self._told_S < len(generation.ids_S):
                    await self._tell(delta_of(generation, self._told_S))
                self._keep(part)
                self._notes.append(Note(NoteCode.CONTINUED_AFTER_ABORT, f"at id {self._sampled_S}"))
            if self._end_S is not None or self._room == 0:
                break
            if not generation.ids_S:
                await asyncio.sleep(min(_LONGEST_PAUSE_S, _PAUSE_S * 2 ** (len(self._calls) - 1)))
        return self._whole()

    @property
    def _sampled_S(self) -> int:
        return sum(len(part.generation.ids_S) for part in self._parts)

    @property
    def _room(self) -> int | None:
        """How many ids may still be sampled; None = to the end of the context."""
        return None if self._draw.max_tokens is None else self._draw.max_tokens - self._sampled_S

    async def _request(self) -> Part:
        source = self._source
        prompt, draw = self._next_prompt(), self._next_draw()
        arrived_ns = time.perf_counter_ns()
        async with source.gate.passage(source.seat.name) as held_s:
            if held_s:
                source.times.since(Stage.HOLD, arrived_ns)
                self._notes.append(Note(NoteCode.HELD_FOR_POLICY, f"{held_s:.1f} s"))
            with source.times.stage(Stage.ENGINE):
                generation, ranges = await self._generated(prompt, draw)
        if self._calls or generation.finish is Finish.ABORT:
            # The whole is checked as one answer to the first prompt; what each request ran is only known here.
            verify(prompt, draw, generation, source.vocabulary)
            image_runs(prompt, Shown(), generation)
        self._notes += ranges.notes
        return Part(generation, ranges.tiles)

    async def _generated(self, prompt: Prompt, draw: Draw) -> tuple[Generation, Ranges]:
        """What a request that has passed its gate samples, and under which versions of the policy."""
        source = self._source
        async with source.seat.open() as engine:
            epoch = source.policy.epoch(source.seat.name)
            if not self._calls:
                source.begin(epoch)
            self._told_S = 0
            before = await label_now(engine)
            generation = await engine.generate(prompt, draw, self._tell)
            after = "" if generation.policy_spans else await label_now(engine)
            return generation, ranges_of(generation, epoch, Told(before, after))

    def _next_prompt(self) -> Prompt:
        ids_S = join(part.generation.ids_S for part in self._parts)
        if not ids_S:
            return self._prompt
        start = len(self._prompt.added_A)
        return msgspec.structs.replace(
            self._prompt,
            added_A=self._prompt.added_A + ids_S,
            added_segments=(
                *self._prompt.added_segments,
                Segment(start, start + len(ids_S), SegmentKind.SAMPLED),
            ),
        )

    def _next_draw(self) -> Draw:
        if not self._calls:
            return self._draw
        seed = continued_seed(self._draw.seed, len(self._calls))
        return msgspec.structs.replace(self._draw, max_tokens=self._room, seed=seed)

    async def _tell(self, delta: Delta) -> None:
        """Emit what a request has sampled, up to the end of a stop string that began in the request before."""
        came_ns = time.perf_counter_ns()
        try:
            await self._emit_up_to_stop(delta)
        finally:
            self._source.times.handled(came_ns)

    async def _emit_up_to_stop(self, delta: Delta) -> None:
        self._told_S += len(delta.ids_S)
        if self._end_S is not None:
            return
        hit = None if self._scan is None else self._scan.feed(delta.ids_S.tolist())
        if hit is not None:
            self._end_S = self._sampled_S + self._told_S - len(delta.ids_S) + hit.index + 1
            self._stop_string = hit.stop_string
            delta = shortened(delta, hit.index + 1)
        await self._emit(delta)

    def _check_goes_on(self, part: Part) -> None:
        """Raises: EngineError `engine_aborted` if the completion cannot be taken up again, or is not to be."""
        generation, left = part.generation, self._source.continuations - len(self._calls)
        if left <= 0:
            why = "and it is not continued" if not self._calls else f"and was asked {len(self._calls) + 1} times"
        elif not _is_whole(generation) and self._told_S:
            why = f"and did not say all that it had sampled ({_counts(generation)})"
        elif self._prompt.read_with is not None and self._told_S:
            why = "and its own parser cannot begin in the middle of an answer"
        else:
            return
        raise EngineError(
            f"The engine gave the call up ({generation.engine_finish_reason or 'abort'}), {why}",
            "Send it again; --continue-aborted says how often such a call is taken up again",
            code="engine_aborted",
            status=503,
        )

    def _keep(self, part: Part) -> None:
        generation = part.generation
        self._parts.append(part)
        self._calls.append(
            EngineCall(len(generation.ids_S), generation.engine_request_id, generation.engine_finish_reason)
        )
        if self._draw.stop and self._scan is None and generation.finish is Finish.ABORT:
            strings_only = msgspec.structs.replace(self._draw, stop_ids=frozenset())
            self._scan = StopScan(strings_only, self._source.vocabulary)
            self._scan.feed(generation.ids_S.tolist())

    def _discard(self, generation: Generation) -> None:
        self._calls.append(
            EngineCall(0, generation.engine_request_id, generation.engine_finish_reason, generation.ids_S)
        )
        self._notes.append(Note(NoteCode.RESTARTED_AFTER_ABORT, _counts(generation)))

    def _whole(self) -> Drawn:
        whole = joined(self._parts)
        if self._end_S is not None:
            dropped = len(whole.generation.ids_S) - self._end_S
            if dropped:
                self._notes.append(Note(NoteCode.TRIMMED_PAST_STOP, f"{dropped} tokens"))
            whole = cut(whole, self._end_S, self._stop_string)
        calls = tuple(self._calls) if len(self._calls) > 1 else ()
        return Drawn(whole.generation, whole.tiles, tuple(self._notes), calls)


def _is_whole(generation: Generation) -> bool:
    """Whether an engine said all that it had sampled before it gave up (public case L3, variant a)."""
    logprobs_S = generation.logprobs_S
    return len(generation.ids_S) == generation.usage.completion_tokens and (
        logprobs_S is None or len(logprobs_S) == len(generation.ids_S)
    )


def _counts(generation: Generation) -> str:
    return f"{len(generation.ids_S)} of {generation.usage.completion_tokens} ids"
