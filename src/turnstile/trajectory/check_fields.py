"""E103 to E107 and W806: words, indices, numbers and times of one rollout."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from turnstile.trajectory.format import format_minor, non_finite, parts_with_unknown
from turnstile.trajectory.shapes import (
    CALL_KINDS,
    FINISHES,
    HISTORIES,
    LOGPROBS_MODES,
    SEGMENT_KINDS,
    STATUSES,
    Rollout,
)
from turnstile.trajectory.violation import Fault

_AXES = frozenset({"tokens", "sampled"})
_MEDIA_KINDS = frozenset({"image", "video", "audio"})
_RUN_FIELDS = ("logprobs", "token_weights", "weight")


def check_fields(rollout: Rollout) -> Iterator[Fault]:
    """All but the indices."""
    yield from _check_words(rollout)
    yield from _check_numbers_and_times(rollout)
    if not rollout.trainable and not rollout.mask_reasons:
        yield Fault("E107", "untrainable without a reason")
    names = sorted({name for _, part in parts_with_unknown(rollout) for name in part.unknown})
    if names:
        yield Fault("W806", f"kept without being understood: {', '.join(names)}")


def _check_words(rollout: Rollout) -> Iterator[Fault]:
    # A word of a newer minor version is kept and passed on; in a version whose words are all known it is wrong.
    code = "W806" if format_minor(rollout) > 0 else "E103"
    for where, word, known in _words(rollout):
        if word not in known:
            yield Fault(code, f"field {where}: expected one of {', '.join(sorted(known))}, got {word!r}")


def _words(rollout: Rollout) -> Iterator[tuple[str, str, frozenset[str]]]:
    yield "status", rollout.status, STATUSES
    for at, call in enumerate(rollout.calls):
        yield f"calls[{at}].history", call.history, HISTORIES
        yield f"calls[{at}].kind", call.kind, CALL_KINDS
        yield f"calls[{at}].finish", call.finish, FINISHES
        yield f"calls[{at}].logprobs_mode", call.logprobs_mode, LOGPROBS_MODES
    for at, sequence in enumerate(rollout.sequences):
        for number, segment in enumerate(sequence.segments):
            yield f"sequences[{at}].segments[{number}].kind", segment.kind, SEGMENT_KINDS
        for number, entry in enumerate(sequence.media):
            yield f"sequences[{at}].media[{number}].kind", entry.kind, _MEDIA_KINDS
        for name, array in sequence.arrays.items():
            yield f"sequences[{at}].arrays.{name}.axis", array.axis, _AXES


def _check_numbers_and_times(rollout: Rollout) -> Iterator[Fault]:
    for where in non_finite(rollout):
        # Runs of numbers have codes of their own, which name the token.
        if not where.startswith("sequences") or not where.endswith(_RUN_FIELDS):
            yield Fault("E106", f"{where} is not finite")
    if _ends_early(rollout.created_at, rollout.finished_at):
        yield Fault("E106", "the rollout finished before it was created")
    for at, call in enumerate(rollout.calls):
        if _ends_early(call.started_at, call.finished_at):
            yield Fault("E106", f"call {call.call_id} finished before it started", index=at)


def _ends_early(start: datetime, end: datetime | None) -> bool:
    return end is not None and end < start


def check_indices(rollout: Rollout) -> Iterator[Fault]:
    """E105: every index leads somewhere. The checks behind this one rely on it."""
    calls, tools = len(rollout.calls), len(rollout.tools)
    for at, head in enumerate(rollout.heads):
        yield from _out_of_range(f"heads[{at}].tools", head.tools, tools)
    for at, call in enumerate(rollout.calls):
        yield from _out_of_range(f"calls[{at}].parent", call.parent, at)
        yield from _out_of_range(f"calls[{at}].head", call.head, len(rollout.heads))
        yield from _out_of_range(f"calls[{at}].sampling", call.sampling, len(rollout.samplings))
        yield from _out_of_range(f"calls[{at}].sequence", call.sequence, len(rollout.sequences))
    for at, sequence in enumerate(rollout.sequences):
        yield from _out_of_range("head", sequence.head, len(rollout.heads), at)
        yield from _out_of_range("leaf_call", sequence.leaf_call, calls, at)
        for message in sequence.messages:
            yield from _out_of_range("messages", message, len(rollout.messages), at)
        for segment in sequence.segments:
            yield from _out_of_range("segments.call", segment.call, calls, at)


def _out_of_range(name: str, index: int | None, length: int, sequence: int | None = None) -> Iterator[Fault]:
    if index is not None and not 0 <= index < length:
        yield Fault("E105", f"index {name}={index} out of range", sequence)
