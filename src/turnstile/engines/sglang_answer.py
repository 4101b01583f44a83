"""One answer of SGLang, put together from its events, each of which is checked before a token of it is believed.

Source: sglang 0.5.23, `srt/managers/tokenizer_manager.py`. A stream is cumulative (each event brings everything
sampled so far) unless the server runs with `--incremental-streaming-output`. Which one it is is seen in each event:
`completion_tokens` is the total in both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from turnstile.engines.sglang_shapes import Event, LogprobEntry, MetaInfo, WeightSpan, broken, refusal
from turnstile.generation import Finish
from turnstile.tokens import LOWEST_LOGPROB, PolicySpan

T = TypeVar("T")

_SLACK = 1e-3
_BROKEN_NUMBERS = "NaN happened"
"""The `matched` of an answer that the server ended because of an id outside the vocabulary; that id was replaced
(`Req._check_vocab_boundary_finish`)."""


class Fresh(msgspec.Struct, frozen=True):
    """What an event added. Shapes: one entry of each list for each id; `top` is empty if none was asked for."""

    ids: list[int]
    logprobs: list[float | None]
    top: list[list[LogprobEntry]]


class Ending(msgspec.Struct, frozen=True):
    """How an answer ended, in the server's words."""

    finish: Finish
    label: str
    stop_string: str = ""
    spans: tuple[WeightSpan, ...] = ()


class _Place(msgspec.Struct, frozen=True):
    """Which ids of the answer an event brings: [first, total), of which [first, held) were here already."""

    first: int
    """0 in a cumulative stream, `held` in an incremental one."""
    held: int
    total: int
    is_abort: bool


class Answer:
    """The ids of one answer while they come in."""

    def __init__(self, stop: Sequence[str]) -> None:
        """Begin. `stop`: the stop strings that were sent."""
        self._stop = stop
        self._ids: list[int] = []

    def take(self, event: Event) -> Fresh:
        """What the event added to the answer.

        Raises: CallerError or EngineError if the event is an error; EngineError `engine_broken` if it cannot be true.
        """
        meta = _told(event)
        ids = event.output_ids
        if ids is None or meta.completion_tokens is None:
            raise broken("an event without `output_ids` and `meta_info.completion_tokens`")
        place = self._place(ids, meta)
        fresh = ids[place.held - place.first : place.total - place.first]
        logprobs = _logprobs(fresh, _part(meta.output_token_logprobs, place))
        top = _part(meta.output_top_logprobs, place)
        self._ids += fresh
        if meta.finish_reason is not None:
            self._check_length(meta)
        return Fresh(fresh, logprobs, [each or [] for each in top or []])

    def ending(self, event: Event) -> Ending | None:
        """How the answer ended, if this event says so; None if there is more to come.

        Raises: EngineError for an end that Turnstile does not know.
        """
        meta = _told(event)
        reason = meta.finish_reason
        if reason is None:
            return None
        match reason.type, reason.matched:
            case "length", _:
                return Ending(Finish.LENGTH, "length", spans=meta.weight_versions)
            case "abort", _:
                return Ending(Finish.ABORT, f"abort: {reason.message}", spans=meta.weight_versions)
            case "stop", int(matched) if self._ids and self._ids[-1] == matched:
                return Ending(Finish.STOP, "stop", spans=meta.weight_versions)
            case "stop", str(matched) if matched in self._stop:
                return Ending(Finish.STOP, "stop", matched, meta.weight_versions)
            case "stop", str(matched) if matched == _BROKEN_NUMBERS:
                raise broken("the model sampled an id outside its vocabulary (`NaN happened`)")
            case _:
                raise broken(f"`finish_reason` is {msgspec.json.encode(reason).decode()} behind ids {self._ids[-3:]}")

    def _place(self, ids: list[int], meta: MetaInfo) -> _Place:
        held, count = len(self._ids), meta.completion_tokens or 0
        aborted = meta.finish_reason is not None and meta.finish_reason.type == "abort"
        # While it samples, a cumulative event may bring more ids than it counted: it holds the list that still grows.
        is_whole = len(ids) == count if meta.finish_reason else len(ids) >= count
        is_joined = aborted and len(meta.output_token_logprobs or ()) > count
        if is_whole and not is_joined and len(ids) >= held and ids[:held] == self._ids:
            return _Place(0, held, len(ids), aborted)
        if held + len(ids) == count:
            return _Place(held, held, count, aborted)
        if aborted and held + len(ids) == count + 1 and [*self._ids[-1:], *ids][-2:-1] == ids[-1:]:
            # `_handle_abort_req` tells the last id of an incremental stream once more.
            return _Place(held, held, count, aborted)
        raise broken(
            f"`output_ids` has {len(ids)} ids behind {held} and `completion_tokens` is {count}: "
            "neither a part nor the whole"
        )

    def _check_length(self, meta: MetaInfo) -> None:
        length = meta.output_token_logprobs_length
        if length is not None and meta.output_token_logprobs and length != len(self._ids):
            raise broken(f"`output_token_logprobs_length` is {length} and {len(self._ids)} ids came")


def policy_spans(spans: tuple[WeightSpan, ...], count: int) -> tuple[PolicySpan, ...]:
    """Which weights sampled which of the first `count` ids; empty if the server did not say.

    Raises: EngineError `engine_broken` if the spans leave a gap, overlap or end early.
    """
    if not spans:
        return ()
    at, end = 0, 0
    kept: list[PolicySpan] = []
    for span in spans:
        if span.start != at or span.end < span.start:
            raise broken(f"`weight_versions` has [{span.start}, {span.end}) behind {at} ids")
        at = span.end
        end = min(at, count)
        if span.start < end:
            kept.append(PolicySpan(span.version, span.start, end))
    if end < count:
        raise broken(f"`weight_versions` ends at {at} of {count} ids")
    return tuple(kept)


def natural_log(value: float | None) -> float | None:
    """A log-probability as it came; None if it is none. Raises: EngineError `engine_broken` if it is above 0.

    The server clamps a probability of nought to the float32 minimum (`srt/layers/logprob_processor.py`).
    """
    if value is None or not math.isfinite(value) or value <= LOWEST_LOGPROB:
        return None
    if value > _SLACK:
        raise broken(f"`output_token_logprobs` has {value}")
    return min(0.0, value)


def _told(event: Event) -> MetaInfo:
    if event.error is not None:
        error = event.error
        if isinstance(error, str):
            raise refusal(400, error)
        raise refusal(error.code if isinstance(error.code, int) else 400, error.message)
    if event.meta_info is None:
        raise broken("an event without `meta_info`")
    reason = event.meta_info.finish_reason
    if reason is not None and reason.type == "abort" and (reason.status_code or 0) >= 400:
        # The server replaced the prompt by a single id to get rid of it, so nothing else in the event counts
        # (`Req.set_finish_with_abort`).
        raise refusal(reason.status_code or 0, reason.message)
    return event.meta_info


def _part(rows: list[T] | None, place: _Place) -> list[T] | None:
    """The rows of the ids that an event adds. None if the server sent none at all.

    Rows come cumulative or incremental as the ids do. Beside an abort they may all be there in either case, behind
    those of other events if it was joined with some (`_coalesce_streaming_chunks`).
    """
    if not rows:
        return None
    if len(rows) == place.total - place.first:
        return rows[place.held - place.first :]
    if place.is_abort and len(rows) >= place.total:
        return rows[len(rows) - place.total :][place.held :]
    raise broken(f"{len(rows)} log-probabilities came for {place.total - place.first} `output_ids`")


def _logprobs(ids: list[int], entries: list[LogprobEntry] | None) -> list[float | None]:
    if entries is None:
        return [None] * len(ids)
    for token_id, entry in zip(ids, entries, strict=True):
        if entry.token_id != token_id:
            raise broken(f"`output_token_logprobs` is of id {entry.token_id} where `output_ids` has {token_id}")
    return [natural_log(entry.logprob) for entry in entries]
