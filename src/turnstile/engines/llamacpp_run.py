"""One completion on a llama.cpp slot: its requests, what came of them, and the checks on each answer."""

from __future__ import annotations

import math

import msgspec

from turnstile.conversation import TokenLogprob, Usage
from turnstile.engines.base import counted
from turnstile.engines.llamacpp_request import RequestBody, logprobs_mode
from turnstile.engines.llamacpp_shapes import Candidate, Completion, ProbabilityEntry, broken
from turnstile.engines.logprob_fill import Complete, Letter, Refill
from turnstile.engines.probability_gaps import align
from turnstile.engines.stop_scan import StopScan
from turnstile.errors import EchoMismatch
from turnstile.generation import Delta, Draw, Emit, Finish, Free, Generation, LogprobsMode, Note, Numbers
from turnstile.reasons import ImageFault, NoteCode
from turnstile.tokens import LOWEST_LOGPROB, IdRun, LogprobRun, Vocabulary

FIRST_SEGMENT = 2
"""The first text is sent as soon as there is any."""
GROWN_SEGMENT = 16
LONGEST_SEGMENT = 48
"""Each request costs both sides the same whatever it samples; 48 tokens are half a second at 96 tokens a second."""
_NO_LIMIT = 1 << 20
_PROBABILITY_SLACK = 1e-4


class Ground(msgspec.Struct, frozen=True):
    """What all completions of an engine stand on."""

    complete: Complete
    vocabulary: Vocabulary
    letter: Letter
    context_length: int | None


class Run:
    """The state of one completion. One of `in_segments` and `at_once` is awaited once, then `generation` is read."""

    def __init__(self, ground: Ground, body: RequestBody, draw: Draw) -> None:
        self._complete = ground.complete
        self._vocabulary = ground.vocabulary
        self._context_length = ground.context_length
        self._refill = Refill(ground.complete, body, ground.letter)
        self._body = body
        self._draw = draw
        self._mode = logprobs_mode(draw)
        self._scan = StopScan(draw, ground.vocabulary)
        self._ids: list[int] = []
        self._logprobs: list[float | None] = []
        self._first: Completion | None = None
        self._ending: tuple[Finish, str, str] = (Finish.LENGTH, "limit", "")
        self._requests = 0
        self._filled = 0
        self._sampled_again = 0
        self._trimmed = 0

    async def in_segments(self, emit: Emit) -> None:
        """Sample in short requests, each behind what the earlier ones gave."""
        size = FIRST_SEGMENT
        while (count := self._allowed(size)) > 0:
            answer = await self._sample(count)
            aligned = align(answer.tokens, answer.completion_probabilities, self._vocabulary)
            kept = len(answer.tokens)
            if aligned.gaps:
                # Sampling goes on right behind the first token of a character: the rest of it is then the start
                # of a request's text, which has numbers. What is dropped is dropped whatever it was, so what
                # is sampled in its place comes from the same distribution.
                kept = aligned.gaps[0] + 1
                self._sampled_again += len(answer.tokens) - kept
            cut_short = kept < len(answer.tokens)
            ended = await self._take(answer.tokens[:kept], aligned.entries_S[:kept], emit)
            if ended or (not cut_short and self._says_end(answer)):
                return
            size = GROWN_SEGMENT if cut_short or size < GROWN_SEGMENT else LONGEST_SEGMENT

    async def at_once(self, emit: Emit) -> None:
        """Sample in one request: a grammar's state lives no longer than one, and ids cannot follow images."""
        count = self._allowed(self._draw.max_tokens if self._draw.max_tokens is not None else _NO_LIMIT)
        if count <= 0:
            return
        answer = await self._sample(count)
        aligned = align(answer.tokens, answer.completion_probabilities, self._vocabulary)
        if not await self._take(answer.tokens, aligned.entries_S, emit):
            self._says_end(answer)

    def generation(self, seed: int) -> Generation:
        """What came of it. `seed` is the request's own."""
        finish, label, stop_string = self._ending
        first = self._first
        echo = _SamplerEcho(
            seed=seed,
            choice=self._draw.choice,
            requests=self._requests,
            sampled_again=self._sampled_again,
            settings=first.generation_settings if first else msgspec.Raw(b"{}"),
        )
        return Generation(
            ids_S=IdRun.of(self._ids),
            logprobs_S=LogprobRun.of(self._logprobs),
            finish=finish,
            engine_finish_reason=label,
            usage=Usage(
                prompt_tokens=first.tokens_evaluated if first else self._body.prompt_length,
                completion_tokens=len(self._ids),
                cached_tokens=first.cache_n if first else None,
            ),
            logprobs_mode=self._mode,
            logprobs_temperature=self._temperature,
            stop_string=stop_string,
            sampler_echo=msgspec.json.encode(echo).decode(),
            notes=self._notes(),
        )

    @property
    def _temperature(self) -> float:
        return 1.0 if self._mode is LogprobsMode.RAW else self._draw.temperature

    def _allowed(self, size: int) -> int:
        # The first request goes out whatever its length: that a prompt is too long is the engine's to say.
        limits = [size]
        if self._draw.max_tokens is not None:
            limits.append(self._draw.max_tokens - len(self._ids))
        if self._context_length is not None and self._ids:
            limits.append(self._context_length - self._body.prompt_length - len(self._ids))
        return min(limits)

    async def _sample(self, count: int) -> Completion:
        answer = await self._complete(self._body.sample(self._ids, count))
        self._requests += 1
        prompt_length = self._body.prompt_length + len(self._ids)
        _check(answer, prompt_length, count, self._vocabulary.size)
        if self._body.echo is not None and answer.prompt != self._body.echo:
            raise EchoMismatch(
                f"llama.cpp ran other text around the images than was sent ({ImageFault.IMAGE_IN_WRONG_PLACE})",
                remedy="Check that nothing between Turnstile and the engine changes requests",
            )
        if self._ids and answer.cache_n is not None and answer.cache_n < prompt_length // 2:
            self._body.lease.found_empty()
        self._first = self._first or answer
        return answer

    def _says_end(self, answer: Completion) -> bool:
        if answer.stop_type == "eos":
            self._ending = (Finish.STOP, "eos", "")
            return True
        if answer.truncated:
            self._ending = (Finish.LENGTH, "limit", "")
            return True
        return False

    async def _take(self, tokens: list[int], entries: tuple[ProbabilityEntry | None, ...], emit: Emit) -> bool:
        hit = self._scan.feed(tokens)
        if hit is not None:
            self._trimmed += len(tokens) - hit.index - 1
            tokens, entries = tokens[: hit.index + 1], entries[: hit.index + 1]
        start = len(self._ids)
        self._ids += tokens
        known = [self._number(entry) for entry in entries]
        for at, value in enumerate(known):
            if value is None:
                known[at] = await self._asked_again(start + at)
        self._logprobs += known
        numbers = Numbers(LogprobRun.of(known), self._mode, self._temperature)
        await emit(Delta(IdRun.of(tokens), self._shown(tokens, known, entries), numbers))
        if hit is not None:
            self._ending = (Finish.STOP, "stop_string" if hit.stop_string else "stop_id", hit.stop_string)
        return hit is not None

    def _number(self, entry: ProbabilityEntry | None) -> float | None:
        if entry is None:
            return None
        return _natural_log(entry.prob, entry.logprob, self._mode)

    def _shown(
        self, tokens: list[int], known: list[float | None], entries: tuple[ProbabilityEntry | None, ...]
    ) -> tuple[TokenLogprob, ...]:
        if self._draw.top_logprobs == 0:
            return ()
        token_bytes = self._vocabulary.token_bytes
        return tuple(
            TokenLogprob(
                token_bytes(token),
                value,
                tuple(
                    (token_bytes(one.id), number)
                    for one in _alternatives(entry)
                    if (number := _natural_log(one.prob, one.logprob, self._mode)) is not None
                ),
            )
            for token, value, entry in zip(tokens, known, entries, strict=True)
        )

    async def _asked_again(self, at: int) -> float | None:
        """The log-probability of the sampled token at an index, from what the engine says behind the ids before it."""
        before, token = self._ids[:at], self._ids[at]
        if self._body.echo is not None:
            # Images go with text only, and the ids before a gap need not be how their text is spelled.
            return None
        if self._mode is LogprobsMode.RAW:
            value = await self._refill.raw(before, token)
        elif self._draw.is_unfiltered:
            value = await self._refill.at_temperature(before, token, self._draw.temperature)
        else:
            # Under filters or penalties the row that was sampled from cannot be rebuilt.
            return None
        self._filled += value is not None
        return value

    def _notes(self) -> tuple[Note, ...]:
        unknown = sum(value is None for value in self._logprobs)
        noted = {
            NoteCode.LOGPROB_FILLED: self._filled,
            NoteCode.LOGPROB_MISSING: unknown,
            NoteCode.TRIMMED_PAST_STOP: self._trimmed,
        }
        notes = [*counted(noted)]
        if not isinstance(self._draw.constraint, Free):
            notes.append(Note(NoteCode.CONSTRAINED, "the recorded numbers are the model's own, without the grammar"))
        return tuple(notes)


class _SamplerEcho(msgspec.Struct, frozen=True):
    seed: int
    choice: int
    requests: int
    """How many requests the answer was sampled in; each had a seed of its own, made from `seed`."""
    sampled_again: int
    """Tokens that were dropped and sampled anew, so that the first token of a character ends a request."""
    settings: msgspec.Raw


def _check(answer: Completion, prompt_length: int, count: int, vocab_size: int) -> None:
    """Raises: EchoMismatch or EngineError `engine_broken`, naming the field, if the answer cannot be true."""
    tokens = answer.tokens
    entries = answer.completion_probabilities
    if answer.tokens_evaluated != prompt_length:
        raise EchoMismatch(
            f"llama.cpp ran {answer.tokens_evaluated} prompt tokens, and {prompt_length} were sent",
            remedy="Check that nothing between Turnstile and the engine changes requests",
        )
    if not 1 <= len(tokens) <= count:
        raise broken(f"`tokens` has {len(tokens)} ids where 1 to {count} were asked for")
    if answer.tokens_predicted != len(tokens):
        raise broken(f"`tokens_predicted` is {answer.tokens_predicted} and `tokens` has {len(tokens)} ids")
    if len(entries) > len(tokens):
        raise broken(f"`completion_probabilities` has {len(entries)} entries for {len(tokens)} `tokens`")
    if answer.stop_type not in ("eos", "limit"):
        raise broken(f"`stop_type` is {answer.stop_type!r}, and neither a stop string nor a stream was asked for")
    at = next((at for at, token in enumerate(tokens) if not 0 <= token < vocab_size), None)
    if at is not None:
        raise broken(f"`tokens[{at}]` is {tokens[at]}, and the vocabulary has {vocab_size} ids")


def _alternatives(entry: ProbabilityEntry | None) -> tuple[Candidate, ...]:
    return (entry.top_probs or entry.top_logprobs) if entry else ()


def _natural_log(prob: float | None, logprob: float | None, mode: LogprobsMode) -> float | None:
    if mode is LogprobsMode.RAW:
        # The server sums in float32, which leaves its numbers up to 2e-4 too high.
        return None if logprob is None or logprob <= LOWEST_LOGPROB else min(0.0, logprob)
    if prob is None or prob <= 0.0:
        return None
    if prob > 1.0 + _PROBABILITY_SLACK or math.isnan(prob):
        raise broken(f"`completion_probabilities[].prob` is {prob}")
    return min(0.0, math.log(prob))
