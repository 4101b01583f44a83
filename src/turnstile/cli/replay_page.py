"""What a replay shows, as people read it: the verdict, a row a call, and the rollout in numbers then and now."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from turnstile.cli.progress import counted
from turnstile.reports.replay_outcome import CallReplay, ReplayReport, Side

SHOWN = 40
"""Calls that a person is shown; those that differ come first where there are more."""
NUMBERS = ("calls", "sequences", "roots", "forks", "rerenders", "prompt_tokens", "sequence_tokens")


def show_replay(report: ReplayReport, console: Console) -> None:
    """Print a report for a person."""
    attempt = f" attempt {report.attempt}" if report.attempt > 1 else ""
    total = counted(len(report.calls), "prompt")
    name = f"{escape(report.rollout_id)}{attempt}"
    if not report.differing:
        console.print(f"[bold green]equal[/]  {name}: all ids of {total} are the recorded ones.", highlight=False)
    else:
        said = f"{report.differing} of {total} {'is' if report.differing == 1 else 'are'} not as recorded."
        console.print(f"[bold yellow]different[/]  {name}: {said}", highlight=False)
        _show_first(next(call for call in report.calls if not call.is_equal), console)
        console.print(_calls(report))
        if len(report.calls) > SHOWN:
            console.print(f"... and {len(report.calls) - SHOWN} more; --json shows all.")
        console.print(_sides(report.then, report.now))
    for skipped in report.skipped:
        console.print(f"Not replayed: {escape(skipped.what)}; {escape(skipped.why)}", highlight=False, soft_wrap=True)


def _show_first(call: CallReplay, console: Console) -> None:
    """The first call that differs: where, and both sides below each other."""
    if call.difference is None:
        console.print(f"First: prompt of {call.call_id} cannot be planned. {escape(call.problem)}", soft_wrap=True)
        return
    found = call.difference
    console.print(f"First: prompt of {call.call_id} at token {found.index}", highlight=False)
    for side, ids, text in (("recorded", found.then_ids, found.then), ("now", found.now_ids, found.now)):
        console.print(escape(f"  {side:8}  {text!r}"), highlight=False, soft_wrap=True)
        console.print(escape(f"            {list(ids)}"), highlight=False, soft_wrap=True)


def _calls(report: ReplayReport) -> Table:
    table = _table("call", "recorded", "now", "tokens", "tokens now", "ids", "ended")
    shown = sorted(report.calls, key=lambda call: call.is_equal)[:SHOWN] if len(report.calls) > SHOWN else report.calls
    for call in shown:
        ids = "equal" if call.is_equal else f"from token {call.difference.index}" if call.difference else "none"
        table.add_row(
            call.call_id, call.then, call.now, str(call.then_tokens), str(call.now_tokens or "-"), ids, call.ended
        )
    return table


def _sides(then: Side, now: Side) -> Table:
    table = _table("", "recorded", "now")
    for name in NUMBERS:
        table.add_row(name.replace("_", " "), str(getattr(then, name)), str(getattr(now, name)))
    return table


def _table(*columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
