"""A rollout as a timeline for people: who put which tokens where."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from turnstile.reasons import NoteCode
from turnstile.tokens import IdRun, SegmentKind
from turnstile.trajectory.format import MediaEntry, Rollout, Sequence, SequenceSegment

_COLOURS = {
    SegmentKind.PROMPT: "cyan",
    SegmentKind.OBSERVATION: "blue",
    SegmentKind.SCAFFOLD: "bright_black",
    SegmentKind.SAMPLED: "green",
    SegmentKind.REPLAYED: "magenta",
}
_HEADINGS = ("tokens", "origin", "call", "logprob", "text")
_GAP = 2
"""Blanks between columns."""
_LONGEST, _SHORTEST = 100, 16
"""Characters of a segment's text that are shown: at most, and however narrow the terminal is."""


def show_timeline(rollout: Rollout, decode: Callable[[IdRun], str], console: Console) -> None:
    """Print every sequence, a line a segment: tokens, kind by word and colour, call, mean log-probability, text."""
    console.print(f"[bold]{rollout.rollout_id}[/]  status {rollout.status}  reward {rollout.reward}")
    for call_id, detail in _moves(rollout):
        console.print(f"call {call_id} went to another engine: {escape(detail)}", soft_wrap=True)
    for sequence in rollout.sequences:
        console.print(f"sequence [bold]{sequence.sequence_id}[/], {len(sequence.token_ids)} tokens")
        console.print(_table(rollout, sequence, decode, console.width))
    counts = rollout.token_counts
    lost = {**counts.masked, **counts.discarded}
    console.print(
        f"sampled {counts.sampled} = trainable {counts.trainable}"
        + "".join(f" + {reason} {count}" for reason, count in lost.items())
    )


class _Note(msgspec.Struct, frozen=True):
    code: str
    detail: str = ""


class _Facts(msgspec.Struct, frozen=True):
    notes: tuple[_Note, ...] = ()


def _moves(rollout: Rollout) -> Iterator[tuple[str, str]]:
    """Each call that went to another engine than the rollout's call before, and why."""
    for call_id, facts in msgspec.convert(rollout.extra.get("turnstile.calls", {}), dict[str, _Facts]).items():
        yield from ((call_id, note.detail) for note in facts.notes if note.code == NoteCode.ENGINE_MOVED)


def _table(rollout: Rollout, sequence: Sequence, decode: Callable[[IdRun], str], width: int) -> Table:
    table = Table(*_HEADINGS[:-1], box=None, pad_edge=False)
    table.add_column(_HEADINGS[-1], no_wrap=True, overflow="ellipsis")
    facts = [_facts(rollout, sequence, segment) for segment in sequence.segments]
    taken = sum(max(map(len, column)) + _GAP for column in zip(_HEADINGS[:-1], *facts, strict=True))
    room = max(_SHORTEST, min(_LONGEST, width - taken))
    for segment, (tokens, origin, call, logprob) in zip(sequence.segments, facts, strict=True):
        colour = _COLOURS.get(SegmentKind(segment.kind), "white")
        text = _shortened(repr(_text(sequence, segment, decode))[1:-1], room)
        table.add_row(tokens, f"[{colour}]{origin}[/]", call, logprob, f"[{colour}]{escape(text)}[/]")
    return table


def _text(sequence: Sequence, segment: SequenceSegment, decode: Callable[[IdRun], str]) -> str:
    """A segment's text, with a word for each image in the place of its placeholders."""
    pieces: list[str] = []
    at = segment.start
    for entry in sequence.media:
        if segment.start <= entry.offset < segment.end:
            pieces += (decode(sequence.token_ids.slice(at, entry.offset)), _image(entry))
            at = entry.offset + entry.length
    return "".join((*pieces, decode(sequence.token_ids.slice(at, segment.end))))


def _image(entry: MediaEntry) -> str:
    size = f" {entry.width}x{entry.height}" if entry.width and entry.height else ""
    return f"[{entry.kind} {entry.sha256[:8]}{size}: {entry.num_tokens} tokens]"


def _shortened(text: str, room: int) -> str:
    """Beginning and end of a text: both say what it is."""
    if len(text) <= room:
        return text
    end = (room - 3) // 3
    return f"{text[: room - 3 - end]} … {text[-end:]}"


def _facts(rollout: Rollout, sequence: Sequence, segment: SequenceSegment) -> tuple[str, str, str, str]:
    """Tokens, origin, call and mean log-probability."""
    call = ""
    if segment.call is not None:
        info = rollout.calls[segment.call]
        reason = f":{info.history_reason}" if info.history_reason else ""
        call = f"{info.call_id} {info.history}{reason} {info.finish}"
    mask = "" if segment.kind != SegmentKind.SAMPLED or segment.trainable else f" ({segment.mask_reason})"
    return f"{segment.start}-{segment.end}", f"{segment.kind}{mask}", call, _mean_logprob(sequence, segment)


def _mean_logprob(sequence: Sequence, segment: SequenceSegment) -> str:
    for sampled, before_S in sequence.sampled_segments():
        if sampled is segment:
            values = sequence.logprobs.slice(before_S, before_S + segment.end - segment.start).tolist()
            known = [value for value in values if value is not None]
            return f"{sum(known) / len(known):.3f}" if known else "unknown"
    return ""
