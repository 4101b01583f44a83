"""A rollout as a timeline for people: who put which tokens where."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from turnstile.tokens import IdRun, SegmentKind
from turnstile.trajectory.format import Rollout, Sequence, SequenceSegment

_COLOURS = {
    SegmentKind.PROMPT: "cyan",
    SegmentKind.OBSERVATION: "blue",
    SegmentKind.SCAFFOLD: "bright_black",
    SegmentKind.SAMPLED: "green",
    SegmentKind.REPLAYED: "magenta",
}
_SHOWN = 100
"""Characters of a segment's text that are shown."""


def show_timeline(rollout: Rollout, decode: Callable[[IdRun], str], console: Console) -> None:
    """Print every sequence segment by segment: kind by word and colour, tokens, mean log-probability, text."""
    legend = "  ".join(f"[{colour}]{kind.value}[/]" for kind, colour in _COLOURS.items())
    console.print(f"[bold]{rollout.rollout_id}[/]  status {rollout.status}  reward {rollout.reward}   {legend}")
    for sequence in rollout.sequences:
        table = Table("tokens", "origin", "call", "mean logprob", "text", box=None, pad_edge=False)
        for segment in sequence.segments:
            table.add_row(*_row(rollout, sequence, segment, decode))
        console.print(f"sequence [bold]{sequence.sequence_id}[/], {len(sequence.token_ids)} tokens")
        console.print(table)
    counts = rollout.token_counts
    lost = {**counts.masked, **counts.discarded}
    console.print(
        f"sampled {counts.sampled} = trainable {counts.trainable}"
        + "".join(f" + {reason} {count}" for reason, count in lost.items())
    )


def _row(
    rollout: Rollout, sequence: Sequence, segment: SequenceSegment, decode: Callable[[IdRun], str]
) -> tuple[str, str, str, str, str]:
    colour = _COLOURS.get(SegmentKind(segment.kind), "white")
    text = repr(decode(sequence.token_ids.slice(segment.start, segment.end)))[1:-1]
    shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} … {text[-_SHOWN // 2 :]}"
    call = ""
    if segment.call is not None:
        info = rollout.calls[segment.call]
        reason = f":{info.history_reason}" if info.history_reason else ""
        call = f"{info.call_id} {info.history}{reason} {info.finish}"
    mask = "" if segment.kind != SegmentKind.SAMPLED or segment.trainable else f" ({segment.mask_reason})"
    return (
        f"{segment.start}-{segment.end}",
        f"[{colour}]{segment.kind}{mask}[/]",
        call,
        _mean_logprob(sequence, segment),
        f"[{colour}]{escape(shown)}[/]",
    )


def _mean_logprob(sequence: Sequence, segment: SequenceSegment) -> str:
    for sampled, before_S in sequence.sampled_segments():
        if sampled is segment:
            values = sequence.logprobs.slice(before_S, before_S + segment.end - segment.start).tolist()
            known = [value for value in values if value is not None]
            return f"{sum(known) / len(known):.3f}" if known else "unknown"
    return ""
