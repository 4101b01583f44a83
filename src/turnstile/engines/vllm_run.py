"""One completion of vLLM while its events come in: the checks on each, what is emitted, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from turnstile.conversation import ReplyDelta, TokenLogprob, Usage
from turnstile.engines.base import counted
from turnstile.engines.stop_scan import StopScan
from turnstile.engines.vllm_door import Piece, Scored
from turnstile.engines.vllm_images import expanded
from turnstile.engines.vllm_numbers import constrained_note, is_constrained, meaning
from turnstile.engines.vllm_shapes import Counts, WeightSpan, broken
from turnstile.errors import EchoMismatch, EngineError
from turnstile.expansion import ExpandedIds
from turnstile.generation import Delta, Draw, Emit, Finish, Generation, LogprobsMode, Note, Numbers, Prompt
from turnstile.reasons import NoteCode
from turnstile.tokens import IdRun, LogprobRun, PolicySpan, Vocabulary, first_difference

_ECHO = b'"prompt_token_ids":['
_FINISHES = {
    "stop": Finish.STOP,
    "tool_calls": Finish.STOP,
    "length": Finish.LENGTH,
    "abort": Finish.ABORT,
    "error": Finish.ERROR,
}


class Reader(Protocol):
    """The engine's own parser, where an answer does not bring its reading."""

    async def read(self, ids: Sequence[int], finish: str) -> ReplyDelta | None:
        """What is read now; `finish` is empty while more ids come."""
        ...


class Ground(msgspec.Struct, frozen=True):
    """What a completion stands on."""

    vocabulary: Vocabulary
    measured: LogprobsMode
    """What the server's log-probabilities were seen to be."""
    must_echo: bool
    """Whether no id is believed before the prompt's echo: the door may have run another prompt."""
    reader: Reader | None = None


class Run:
    """The state of one completion: `take` each piece, then read `generation`."""

    def __init__(self, ground: Ground, prompt: Prompt, draw: Draw) -> None:
        self._vocabulary = ground.vocabulary
        self._reader = ground.reader
        self._must_echo = ground.must_echo or bool(prompt.media)
        self._prompt = prompt
        self._draw = draw
        self._meaning = meaning(ground.measured, prompt, draw)
        self._scan = StopScan(draw, ground.vocabulary)
        self._ids: list[int] = []
        self._logprobs: list[float | None] = []
        self._received = 0
        self._stop_string: str | None = None
        """None until the answer's end was found in its ids; empty if a stop token ended it."""
        self._is_aligned = True
        self._echo_T: IdRun | None = None
        self._expanded: ExpandedIds | None = None
        self._counts: Counts | None = None
        self._spans: tuple[WeightSpan, ...] = ()
        self._last = Piece()
        self._request_id = ""

    @property
    def is_over(self) -> bool:
        """Whether the engine has said how the answer ended."""
        return bool(self._last.finish)

    def without_echo(self, event: bytes, written: bytes) -> bytes:
        """An event without its echo of the prompt, where that is byte for byte what was sent.

        To read the echo of a long prompt costs more than all the rest of an answer, to compare it costs nothing.

        Args:
            event: as it came.
            written: the prompt's ids as the inside of a JSON array, as they were sent.
        """
        if self._echo_T is not None or self._prompt.media:
            return event
        # Inside a text its quotation marks would be escaped.
        start = event.find(_ECHO) + len(_ECHO)
        if start < len(_ECHO) or not event.startswith(written + b"]", start):
            return event
        self._echo_T = self._prompt.ids_T
        return event[: start - 1] + b"null" + event[start + len(written) + 1 :]

    async def take(self, piece: Piece, emit: Emit) -> None:
        """Check what an event brought, and emit it.

        Raises: EchoMismatch or EngineError if it cannot be true.
        """
        self._take_head(piece)
        self._received += len(piece.ids)
        said = piece.said
        if self._reader is not None and (piece.ids or piece.finish):
            said = await self._reader.read(piece.ids, piece.finish)
        delta = self._delta(piece)
        if delta.ids_S or said is not None:
            await emit(msgspec.structs.replace(delta, said=said))

    def generation(self) -> Generation:
        """What came of it. Raises: EngineError if the stream ended before the answer did."""
        if not self.is_over:
            raise EngineError(
                "vLLM ended its stream before the answer was whole",
                remedy="Look into the engine's own log; send the request again when it is up",
                code="engine_unreachable",
            )
        if self._counts is None:
            raise broken("no `usage` came, and it was asked for")
        return Generation(
            ids_S=IdRun.of(self._ids),
            logprobs_S=LogprobRun.of(self._logprobs) if self._is_aligned else None,
            finish=self._finish,
            engine_finish_reason=self._last.finish,
            usage=self._usage(self._counts),
            logprobs_mode=self._meaning.mode,
            logprobs_temperature=self._meaning.temperature,
            stop_string=self._found_stop,
            engine_request_id=self._request_id,
            prompt_echo_T=self._echo_T,
            notes=self._notes(),
            policy_spans=self._policy_spans(),
            expanded=self._expanded,
        )

    def _take_head(self, piece: Piece) -> None:
        if piece.echo is not None and self._echo_T is None:
            self._take_echo(piece)
        if piece.ids and self._must_echo and self._echo_T is None:
            raise EchoMismatch(
                "The engine does not say which prompt ids it ran, and this route may run others (echo_mismatch)",
                "Start vLLM with --enable-scale-out, or serve with a template whose answers Turnstile can read",
            )
        self._counts = piece.counts or self._counts
        self._spans = piece.spans or self._spans
        self._request_id = self._request_id or piece.request_id
        if piece.finish:
            self._last = piece

    def _take_echo(self, piece: Piece) -> None:
        try:
            echo_T = IdRun.of(piece.echo or ())
        except OverflowError as problem:
            raise broken(f"`prompt_token_ids`: {problem}") from problem
        if self._prompt.media:
            self._expanded = expanded(self._prompt, echo_T, piece.ranges or ())
            self._echo_T = self._prompt.ids_T
            return
        sent_T = self._prompt.ids_T
        if (at := first_difference(sent_T, echo_T)) is not None:
            raise EchoMismatch(
                f"The engine ran other prompt ids than the {len(sent_T)} it was given (echo_mismatch at={at})",
                "Check that the engine serves the model whose tokenizer Turnstile was started with",
            )
        self._echo_T = echo_T

    def _delta(self, piece: Piece) -> Delta:
        """What is kept of a piece's ids: none behind the end that was found in them."""
        self._check_ids(piece.ids)
        if self._stop_string is not None:
            return Delta(IdRun())
        ids, scored = piece.ids, self._aligned(piece)
        if (hit := self._scan.feed(ids)) is not None:
            self._stop_string = hit.stop_string
            ids, scored = ids[: hit.index + 1], scored[: hit.index + 1]
        known = [each.logprob for each in scored]
        self._ids += ids
        self._logprobs += known
        numbers = Numbers(LogprobRun.of(known), self._meaning.mode, self._meaning.temperature)
        return Delta(IdRun.of(ids), self._shown(scored), numbers if self._is_aligned else None)

    def _check_ids(self, ids: Sequence[int]) -> None:
        size = self._vocabulary.size
        wrong = next((token_id for token_id in ids if not 0 <= token_id < size), None)
        if wrong is not None:
            raise broken(f"`token_ids` has {wrong}, and the vocabulary has {size} ids")

    def _aligned(self, piece: Piece) -> list[Scored]:
        """What is said of each id of a piece. Numbers that do not belong to its ids are numbers of nothing."""
        scored = piece.scored or []
        if [each.token_id for each in scored] == piece.ids:
            return scored
        if scored or piece.ids:
            self._is_aligned = False
        return [Scored(token_id, None) for token_id in piece.ids]

    def _shown(self, scored: Sequence[Scored]) -> tuple[TokenLogprob, ...]:
        if self._draw.top_logprobs == 0:
            return ()
        size, token_bytes = self._vocabulary.size, self._vocabulary.token_bytes
        return tuple(
            TokenLogprob(
                token_bytes(each.token_id),
                each.logprob,
                # A model's head may be wider than its tokenizer.
                tuple((token_bytes(other), value) for other, value in each.top if 0 <= other < size),
            )
            for each in scored
        )

    @property
    def _found_stop(self) -> str:
        if self._stop_string is not None:
            return self._stop_string
        reason = self._last.stop_reason
        return reason if isinstance(reason, str) and self._finish is Finish.STOP else ""

    @property
    def _finish(self) -> Finish:
        if self._stop_string is not None:
            return Finish.STOP
        return _FINISHES.get(self._last.finish, Finish.ERROR)

    def _usage(self, counts: Counts) -> Usage:
        details = counts.prompt_tokens_details
        said = counts.completion_tokens or 0
        return Usage(
            prompt_tokens=counts.prompt_tokens,
            # What was dropped behind a stop string is no part of the answer.
            completion_tokens=len(self._ids) if said == self._received else said,
            cached_tokens=details.cached_tokens if details else None,
        )

    def _policy_spans(self) -> tuple[PolicySpan, ...]:
        count = len(self._ids)
        clipped = (PolicySpan(each.version, each.start, min(each.end, count)) for each in self._spans)
        return tuple(each for each in clipped if each.start_S < each.end_S)

    def _notes(self) -> tuple[Note, ...]:
        unknown, trimmed = sum(value is None for value in self._logprobs), self._received - len(self._ids)
        notes = [*counted({NoteCode.LOGPROB_MISSING: unknown, NoteCode.TRIMMED_PAST_STOP: trimmed})]
        if is_constrained(self._prompt, self._draw):
            notes.append(Note(NoteCode.CONSTRAINED, constrained_note(self._meaning)))
        return tuple(notes)
