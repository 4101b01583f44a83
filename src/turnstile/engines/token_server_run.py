"""One completion of a token server while its events come in: checks on each, what is emitted, what came of it."""

from __future__ import annotations

from turnstile.conversation import Usage
from turnstile.engines.base import counted
from turnstile.engines.stop_scan import StopScan
from turnstile.engines.token_server_shapes import Event, broken, natural_logs, refusal
from turnstile.engines.vllm_images import expanded
from turnstile.engines.vllm_shapes import PlaceholderRange
from turnstile.errors import EchoMismatch, EngineError
from turnstile.expansion import ExpandedIds, ImageRange
from turnstile.generation import Delta, Draw, Emit, Finish, Generation, LogprobsMode, Note, Numbers, Prompt
from turnstile.reasons import NoteCode
from turnstile.tokens import IdRun, LogprobRun, PolicySpan, Vocabulary, first_difference

_FINISHES = {"stop": Finish.STOP, "length": Finish.LENGTH, "abort": Finish.ABORT, "error": Finish.ERROR}
_DIVIDED = (LogprobsMode.TEMPERATURE, LogprobsMode.PROCESSED)


class Run:
    """The state of one completion: `take` each event until it `is_over`, then read `generation`."""

    def __init__(self, prompt: Prompt, draw: Draw, vocabulary: Vocabulary) -> None:
        self._prompt = prompt
        self._draw = draw
        self._vocabulary = vocabulary
        self._scan = StopScan(draw, vocabulary)
        self._head: Event | None = None
        self._expanded: ExpandedIds | None = None
        self._echo_T: IdRun | None = None
        self._ids: list[int] = []
        self._logprobs: list[float | None] = []
        self._received = 0
        self._spans: list[PolicySpan] = []
        self._stop_string: str | None = None
        """None until the answer's end was found in its ids; empty if a stop token ended it."""
        self._last: Event | None = None

    @property
    def is_over(self) -> bool:
        """Whether the answer is whole: by the engine's word, by a stop string, or because ids came behind a stop."""
        return self._last is not None or self.found_stop_string or self._received > len(self._ids)

    @property
    def ended_upstream(self) -> bool:
        """Whether the engine has said how the answer ended."""
        return self._last is not None

    @property
    def found_stop_string(self) -> bool:
        """Whether a stop string ended it, which the engine knows nothing of."""
        return bool(self._stop_string)

    async def take(self, event: Event, emit: Emit) -> None:
        """Check an event and emit what it added.

        Raises: EchoMismatch, EngineError, CallerError; nothing of the event is emitted then.
        """
        if event.error is not None:
            raise refusal(200, event.error)
        if self._head is None:
            self._take_head(event)
            self._head = event
        if event.finish_reason:
            self._last = event
        self._received += len(event.output_ids)
        if self._stop_string is None:
            await self._take_ids_of(event, emit)

    async def _take_ids_of(self, event: Event, emit: Emit) -> None:
        ids = event.output_ids
        size = self._vocabulary.size
        if (foreign := next((each for each in ids if not 0 <= each < size), None)) is not None:
            raise broken(f"`output_ids` has {foreign}, and the vocabulary has {size} ids")
        logprobs = natural_logs(ids, event.logprobs)
        if (hit := self._scan.feed(ids)) is not None:
            self._stop_string = hit.stop_string
            ids, logprobs = ids[: hit.index + 1], logprobs[: hit.index + 1]
        self._take_spans(event, len(ids))
        self._ids += ids
        self._logprobs += logprobs
        if ids:
            numbers = Numbers(LogprobRun.of(logprobs), *self._meaning)
            await emit(Delta(IdRun.of(ids), numbers=numbers))

    def generation(self) -> Generation:
        """What came of it. Raises: EngineError if the stream ended before the answer did."""
        head = self._head
        if head is None or not self.is_over:
            raise EngineError(
                f"The engine ended its stream behind {len(self._ids)} ids, before the answer was whole",
                "Look into the engine's own log; send the request again when it is up",
                code="engine_unreachable",
            )
        mode, temperature = self._meaning
        return Generation(
            ids_S=IdRun.of(self._ids),
            logprobs_S=LogprobRun.of(self._logprobs),
            finish=self._finish,
            engine_finish_reason=self._last.finish_reason if self._last is not None else "stop",
            usage=self._usage(head),
            logprobs_mode=mode,
            logprobs_temperature=temperature,
            stop_string=self._stop_string or "",
            prompt_echo_T=self._echo_T,
            notes=self._notes(),
            policy_spans=tuple(self._spans),
            expanded=self._expanded,
        )

    def _take_head(self, event: Event) -> None:
        """Compare what is said of the prompt with what was sent, before an id is believed."""
        if event.prompt_ids is not None:
            self._take_ids(event.prompt_ids, event)
        elif self._prompt.media:
            raise broken("`prompt_ids` is missing, and without it nothing shows where the images were put")
        elif event.prompt_sha256:
            if event.prompt_sha256 != self._prompt.ids_T.sha256():
                raise _mismatch(
                    f"it ran ids with the hash {event.prompt_sha256[:12]}... as the {len(self._prompt)} sent"
                )
            self._echo_T = self._prompt.ids_T
        elif event.prompt_tokens is None:
            raise broken("it says neither which prompt ids it ran nor how many")
        count = len(self._expanded or self._prompt)
        if event.prompt_tokens is not None and event.prompt_tokens != count:
            raise _mismatch(f"it ran {event.prompt_tokens} prompt ids, and {count} were sent, images in full")

    def _take_ids(self, ids: list[int], event: Event) -> None:
        try:
            echo_T = IdRun.of(ids)
        except OverflowError as large:
            raise broken("`prompt_ids` has a number that is no id") from large
        if not self._prompt.media:
            if (at := first_difference(self._prompt.ids_T, echo_T)) is not None:
                raise _mismatch(f"from index {at} on it ran other ids than the {len(self._prompt)} sent")
            self._echo_T = echo_T
            return
        try:
            ExpandedIds(echo_T, tuple(ImageRange(start, length, length) for start, length in event.image_ranges))
        except ValueError as problem:
            raise broken(f"`image_ranges`: {problem}") from problem
        ranges = [PlaceholderRange(start, length) for start, length in event.image_ranges]
        self._expanded = expanded(self._prompt, echo_T, ranges)
        self._echo_T = self._prompt.ids_T

    def _take_spans(self, event: Event, kept: int) -> None:
        """Which weights sampled the ids of an event that are kept."""
        start = len(self._ids)
        if event.weight_version is not None and kept:
            label = str(event.weight_version)
            if self._spans and (self._spans[-1].label, self._spans[-1].end_S) == (label, start):
                start = self._spans.pop().start_S
            self._spans.append(PolicySpan(label, start, len(self._ids) + kept))
            return
        for each in event.weight_versions:
            end = min(each.end, kept)
            if each.start < end:
                self._spans.append(PolicySpan(str(each.version), start + each.start, start + end))

    @property
    def _meaning(self) -> tuple[LogprobsMode, float | None]:
        """Which distribution the numbers are of, and the temperature in them."""
        head = self._head
        if head is None or head.logprobs_mode not in tuple(LogprobsMode):
            return LogprobsMode.UNKNOWN, None
        mode = LogprobsMode(head.logprobs_mode)
        if mode is LogprobsMode.RAW:
            return mode, 1.0
        told = head.logprobs_temperature
        return (mode, self._draw.temperature if told is None else told) if mode in _DIVIDED else (mode, None)

    @property
    def _finish(self) -> Finish:
        if self._stop_string is not None or self._last is None:
            return Finish.STOP
        return _FINISHES.get(self._last.finish_reason, Finish.ERROR)

    def _usage(self, head: Event) -> Usage:
        told = self._last.completion_tokens if self._last is not None else None
        said = self._received if told is None else told
        return Usage(
            prompt_tokens=len(self._expanded or self._prompt),
            # What was dropped behind a stop string is no part of the answer.
            completion_tokens=len(self._ids) if said == self._received else said,
            cached_tokens=head.cached_tokens,
        )

    def _notes(self) -> tuple[Note, ...]:
        unknown, trimmed = sum(value is None for value in self._logprobs), self._received - len(self._ids)
        notes = [*counted({NoteCode.LOGPROB_MISSING: unknown, NoteCode.TRIMMED_PAST_STOP: trimmed})]
        if self._echo_T is None:
            notes.append(Note(NoteCode.ECHO_UNVERIFIED, "only the number of prompt ids was told"))
        return tuple(notes)


def _mismatch(what: str) -> EchoMismatch:
    return EchoMismatch(
        f"The engine ran another prompt: {what} (echo_mismatch)",
        "Compare the engine with docs/reference/engine-wire.md: it must run the ids that it is given",
    )


def unstreamed(answer: Event) -> Event:
    """An answer that came whole although a stream was asked for. Raises: EngineError `engine_broken` if it is none."""
    if not answer.finish_reason and answer.error is None:
        raise broken("it is neither a stream of events nor a whole answer: there is no `finish_reason`")
    return answer
