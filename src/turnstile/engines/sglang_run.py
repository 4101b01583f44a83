"""One completion on SGLang: its events in, deltas and a generation out."""

from __future__ import annotations

from typing import TypeAlias

from turnstile.conversation import TokenLogprob, Usage
from turnstile.engines.base import counted
from turnstile.engines.sglang_answer import Answer, Ending, Fresh, natural_log, policy_spans
from turnstile.engines.sglang_request import logprobs_mode
from turnstile.engines.sglang_shapes import Event, MetaInfo, broken
from turnstile.engines.stop_scan import StopScan
from turnstile.errors import EchoMismatch
from turnstile.expansion import ExpandedIds, expanded_by_runs
from turnstile.generation import Delta, Draw, Emit, Finish, Free, Generation, LogprobsMode, Note, Numbers, Prompt
from turnstile.reasons import ImageFault, NoteCode
from turnstile.tokens import IdRun, LogprobRun, Vocabulary, first_difference

_Heard: TypeAlias = tuple[list[int] | None, int | None]
"""Which ids the server says that it ran as the prompt, and how many; None: it did not say."""


class Run:
    """The state of one completion: `take` each event until it `is_over`, then read `generation`."""

    def __init__(self, prompt: Prompt, draw: Draw, vocabulary: Vocabulary, of_server: LogprobsMode, rid: str) -> None:
        self._prompt = prompt
        self._draw = draw
        self._vocabulary = vocabulary
        self._rid = rid
        self._mode = logprobs_mode(draw, of_server)
        self._temperature = _temperature(self._mode, draw)
        self._answer = Answer(draw.stop)
        self._scan = StopScan(draw, vocabulary)
        self._ids: list[int] = []
        self._logprobs: list[float | None] = []
        self._trimmed = 0
        self._echo: _Echo | None = None
        self._heard: _Heard = None, None
        self._meta = MetaInfo()
        self._upstream: Ending | None = None
        self._ending: Ending | None = None

    @property
    def is_over(self) -> bool:
        """Whether the answer is whole, by the server's word or because a stop was found in it."""
        return self._ending is not None

    @property
    def ended_upstream(self) -> bool:
        """Whether the server has nothing left to abort."""
        return self._upstream is not None

    async def take(self, event: Event, emit: Emit) -> None:
        """Check an event and emit what it added.

        Raises: EchoMismatch, EngineError, CallerError; nothing of the event is emitted then.
        """
        fresh = self._answer.take(event)
        size = self._vocabulary.size
        foreign = next((token_id for token_id in fresh.ids if not 0 <= token_id < size), None)
        if foreign is not None:
            raise broken(f"`output_ids` has {foreign}, and the vocabulary has {size} ids")
        meta = event.meta_info or MetaInfo()
        self._hear(event.prompt_token_ids, meta.prompt_tokens)
        self._meta = meta
        self._upstream = self._ending = self._answer.ending(event)
        if fresh.ids:
            await self._tell(fresh, emit)

    def _hear(self, ids: list[int] | None, count: int | None) -> None:
        """Check what an event says of the prompt. Most say again what was checked before, which is only compared."""
        known_ids, known_count = self._heard
        heard = known_ids if ids is None else ids, known_count if count is None else count
        if heard != self._heard:
            self._echo = _checked_echo(self._prompt, *heard)
            self._heard = heard

    def generation(self) -> Generation:
        """What came of it. Raises: EngineError `engine_broken` if the stream ended before the answer did."""
        if self._ending is None:
            raise broken(f"the stream ended behind {len(self._ids)} ids without a `finish_reason`")
        echo = self._echo
        if echo is None:
            raise broken("it says neither which prompt ids it ran nor how many")
        return Generation(
            ids_S=IdRun.of(self._ids),
            logprobs_S=LogprobRun.of(self._logprobs),
            finish=self._ending.finish,
            engine_finish_reason=self._ending.label,
            usage=Usage(
                prompt_tokens=echo.count,
                completion_tokens=len(self._ids),
                cached_tokens=self._meta.cached_tokens,
            ),
            logprobs_mode=self._mode,
            logprobs_temperature=self._temperature,
            stop_string=self._ending.stop_string,
            engine_request_id=self._rid,
            prompt_echo_T=echo.collapsed_T,
            notes=self._notes(),
            policy_spans=policy_spans(self._ending.spans, len(self._ids)),
            expanded=echo.expanded,
        )

    async def _tell(self, fresh: Fresh, emit: Emit) -> None:
        ids, logprobs, top = fresh.ids, fresh.logprobs, fresh.top
        hit = self._scan.feed(ids)
        if hit is not None:
            kept = hit.index + 1
            self._trimmed = len(ids) - kept
            ids, logprobs, top = ids[:kept], logprobs[:kept], top[:kept]
            spans = self._upstream.spans if self._upstream else ()
            label = self._upstream.label if self._upstream else "stop_string" if hit.stop_string else "stop_id"
            self._ending = Ending(Finish.STOP, label, hit.stop_string, spans)
        self._ids += ids
        self._logprobs += logprobs
        numbers = Numbers(LogprobRun.of(logprobs), self._mode, self._temperature)
        await emit(Delta(IdRun.of(ids), self._shown(Fresh(ids, logprobs, top)), numbers))

    def _shown(self, fresh: Fresh) -> tuple[TokenLogprob, ...]:
        if self._draw.top_logprobs == 0:
            return ()
        token_bytes = self._vocabulary.token_bytes
        top = fresh.top or [[] for _ in fresh.ids]
        return tuple(
            TokenLogprob(
                token_bytes(token_id),
                value,
                tuple(
                    (token_bytes(each.token_id), number)
                    for each in alternatives
                    if 0 <= each.token_id < self._vocabulary.size and (number := natural_log(each.logprob)) is not None
                ),
            )
            for token_id, value, alternatives in zip(fresh.ids, fresh.logprobs, top, strict=True)
        )

    def _notes(self) -> tuple[Note, ...]:
        unknown = sum(value is None for value in self._logprobs)
        notes = [*counted({NoteCode.LOGPROB_MISSING: unknown, NoteCode.TRIMMED_PAST_STOP: self._trimmed})]
        if self._echo is not None and self._echo.collapsed_T is None:
            notes.append(Note(NoteCode.ECHO_UNVERIFIED, "only the number of prompt ids was told"))
        if not isinstance(self._draw.constraint, Free):
            notes.append(Note(NoteCode.CONSTRAINED, "the recorded numbers are those under the grammar"))
        return tuple(notes)


class _Echo:
    """What the server said about the prompt, found to be true."""

    def __init__(self, count: int, collapsed_T: IdRun | None, expanded: ExpandedIds | None) -> None:
        self.count = count
        self.collapsed_T = collapsed_T
        self.expanded = expanded


def _temperature(mode: LogprobsMode, draw: Draw) -> float | None:
    match mode:
        case LogprobsMode.RAW:
            return 1.0
        case LogprobsMode.TEMPERATURE | LogprobsMode.PROCESSED:
            return draw.temperature
        case LogprobsMode.UNKNOWN | LogprobsMode.NONE:
            return None


def _checked_echo(prompt: Prompt, echo: list[int] | None, count: int | None) -> _Echo:
    """Compare the prompt that was run with the one that was sent, images collapsed.

    A server that cannot expand the placeholders of a prompt decodes it, tokenizes the text again and only logs that
    (`srt/multimodal/processors/base_processor.py`, `process_and_combine_mm_data`); `--allow-auto-truncate` cuts a
    prompt without a word.

    Raises: EchoMismatch if the server ran other ids, another number of them, or other images.
    """
    if echo is None:
        if prompt.media:
            raise broken("`prompt_token_ids` is missing, and without it nothing shows where the images were put")
        if count != len(prompt):
            raise _mismatch(f"it ran {count} prompt ids, and {len(prompt)} were sent")
        return _Echo(len(prompt), None, None)
    try:
        echo_T = IdRun.of(echo)
    except OverflowError as large:
        raise broken("`prompt_token_ids` has a number that is no id") from large
    if count is not None and count != len(echo):
        raise _mismatch(f"it ran {count} prompt ids, and says which {len(echo)}")
    if not prompt.media or prompt.placeholder_id is None:
        if (at := first_difference(prompt.ids_T, echo_T)) is not None:
            raise _mismatch(f"from index {at} on it ran other ids than the {len(prompt)} that were sent")
        return _Echo(len(echo), echo_T, None)
    expanded = expanded_by_runs(echo_T, prompt.placeholder_id)
    if len(expanded.ranges) != len(prompt.media):
        images = f"it put in {len(expanded.ranges)} images, and {len(prompt.media)} were sent"
        raise _mismatch(f"{images} ({ImageFault.IMAGE_COUNT})")
    collapsed_T = expanded.collapsed(prompt.placeholder_id)
    if (at := first_difference(prompt.ids_T, collapsed_T)) is not None:
        raise _mismatch(f"around its images it ran other ids from {at} on ({ImageFault.IMAGE_IN_WRONG_PLACE})")
    return _Echo(len(echo), collapsed_T, expanded)


def _mismatch(what: str) -> EchoMismatch:
    return EchoMismatch(
        f"SGLang ran another prompt: {what}",
        "Leave --allow-auto-truncate and SGLANG_MM_AVOID_RETOKENIZE=0 out of its start, and serve its own tokenizer",
    )
