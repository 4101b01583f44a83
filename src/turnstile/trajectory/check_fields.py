"""E103 to E107 and W806: words, indices, numbers and times of one rollout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from turnstile.trajectory.finite import non_finite
from turnstile.trajectory.format import format_minor, parts_with_unknown
from turnstile.trajectory.shapes import (
    CALL_KINDS,
    FINISHES,
    HISTORIES,
    LOGPROBS_MODES,
    SEGMENT_KINDS,
    STATUSES,
    FormatPart,
    Rollout,
)
from turnstile.trajectory.violation import Fault

ARRAY_AXES = frozenset({"tokens", "sampled"})
_CALL_WORDS = {"history": HISTORIES, "kind": CALL_KINDS, "finish": FINISHES, "logprobs_mode": LOGPROBS_MODES}
MEDIA_KINDS = frozenset({"image", "video", "audio"})


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
    for name, known in _CALL_WORDS.items():
        yield from _in_parts("calls", rollout.calls, name, known)
    for at, sequence in enumerate(rollout.sequences):
        yield from _in_parts(f"sequences[{at}].segments", sequence.segments, "kind", SEGMENT_KINDS)
        yield from _in_parts(f"sequences[{at}].media", sequence.media, "kind", MEDIA_KINDS)
        for name, array in sequence.arrays.items():
            yield f"sequences[{at}].arrays.{name}.axis", array.axis, ARRAY_AXES


def _in_parts(
    where: str, parts: Sequence[FormatPart], name: str, known: frozenset[str]
) -> Iterator[tuple[str, str, frozenset[str]]]:
    words: list[str] = [getattr(part, name) for part in parts]
    if not known.issuperset(words):
        yield from ((f"{where}[{at}].{name}", word, known) for at, word in enumerate(words))


def _check_numbers_and_times(rollout: Rollout) -> Iterator[Fault]:
    for where in non_finite(rollout):
        # A weight has a code of its own, which names the token.
        if not where.endswith(".segments.weight"):
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
    yield from check_followed_indices(rollout)
    yield from _out_of_range("calls[{}].sequence", [call.sequence for call in rollout.calls], len(rollout.sequences))


def check_followed_indices(rollout: Rollout) -> Iterator[Fault]:
    """E105 for all but the sequences that calls name: who took some out of a rollout still has whole rows."""
    calls, tools = len(rollout.calls), len(rollout.tools)
    yield from _out_of_range("heads[{}].tools", [head.tools for head in rollout.heads], tools)
    for at, call in enumerate(rollout.calls):
        if call.parent is not None and not 0 <= call.parent < at:
            yield Fault("E105", f"index calls[{at}].parent={call.parent} out of range")
    yield from _out_of_range("calls[{}].head", [call.head for call in rollout.calls], len(rollout.heads))
    yield from _out_of_range("calls[{}].sampling", [call.sampling for call in rollout.calls], len(rollout.samplings))
    for at, sequence in enumerate(rollout.sequences):
        yield from _out_of_range("head", [sequence.head], len(rollout.heads), at)
        yield from _out_of_range("leaf_call", [sequence.leaf_call], calls, at)
        yield from _out_of_range("messages", sequence.messages, len(rollout.messages), at)
        yield from _out_of_range("segments.call", [segment.call for segment in sequence.segments], calls, at)


def _out_of_range(
    name: str, indices: Sequence[int | None], length: int, sequence: int | None = None
) -> Iterator[Fault]:
    known = [index for index in indices if index is not None]
    if not known or (min(known) >= 0 and max(known) < length):
        return
    for at, index in enumerate(indices):
        if index is not None and not 0 <= index < length:
            yield Fault("E105", f"index {name.format(at)}={index} out of range", sequence)
