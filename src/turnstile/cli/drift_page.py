"""The drift report as people read it: the sum, the kinds, tables by call, rollout and group, and the first places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from turnstile.cli.progress import counted
from turnstile.reports.drift import Difference, Drift, DriftKind, Figures, by_group, total

SHOWN = 12
"""Differences that a person is shown."""
LINE = 80
"""Columns of each of their lines."""


def show(reports: list[Drift], console: Console) -> None:
    """The sum, groups where there are several, and the first places."""
    show_totals(reports, console)
    if len(by_group(reports)) > 1:
        show_groups(reports, console)
    rows = [(each.rollout_id, found) for each in reports for found in each.differences]
    for rollout_id, found in rows[:SHOWN]:
        _show_difference(rollout_id, found, console)
    if len(rows) > SHOWN:
        console.print(f"... and {len(rows) - SHOWN} more; `turnstile drift --json` shows all.")


def show_totals(reports: list[Drift], console: Console) -> None:
    """What was found in all rollouts, and how much of them was compared."""
    sums = total(reports)
    console.print(
        f"[bold]{sums.wrong} of {sums.sampled} sampled tokens{_share(sums.wrong, sums.sampled, ' ({})')}[/]"
        " would have been trained wrongly from text:\nthey stand at or behind the first id that differs.",
        highlight=False,
    )
    if sums.calls_compared:
        console.print(
            f"{sums.calls_differing} of {counted(sums.calls_compared, 'prompt')} would have been other ids:\n"
            f"{sums.prompt_wrong} of {sums.prompt_sampled} sampled tokens in them"
            f"{_share(sums.prompt_wrong, sums.prompt_sampled, ' ({})')} at another place or not there.",
            highlight=False,
            soft_wrap=True,
        )
    console.print(
        f"Compared: {sums.calls_compared} of {counted(sums.calls, 'call')},"
        f" {sums.sequences_compared} of {counted(sums.sequences, 'sequence')},"
        f" in {counted(len(reports), 'rollout')}.",
        highlight=False,
    )
    if not sums.sequences_compared and not sums.calls_compared:
        return
    if not sums.sequences_differing and not sums.calls_differing:
        console.print("No drift: here the text of every history gives back the very ids that were sampled.")
        return
    console.print(f"By kind: {_kinds(sums.wrong_by_kind or sums.prompt_wrong_by_kind)}", highlight=False)


def show_calls(reports: list[Drift], console: Console) -> None:
    """One row a call."""
    table = _table("rollout", "call", "prompt", "tokens", "sampled", "wrong", "kind", "from token")
    for each in reports:
        for call in each.by_call:
            drifted = (call.kind.value, str(call.index)) if call.kind is not None else ("equal", "")
            numbers = (str(call.tokens), str(call.sampled), str(call.wrong))
            table.add_row(escape(each.rollout_id), call.call_id, call.history, *numbers, *drifted)
    console.print(table)


def show_rollouts(reports: list[Drift], console: Console) -> None:
    """One row a rollout."""
    rows = (
        (each.rollout_id if each.attempt == 1 else f"{each.rollout_id} attempt {each.attempt}", each)
        for each in reports
    )
    console.print(_figures("rollout", rows))


def show_groups(reports: list[Drift], console: Console) -> None:
    """One row a group."""
    rows = ((name if name is not None else "-", total(members)) for name, members in by_group(reports).items())
    console.print(_figures("group", rows))


def _figures(name: str, rows: Iterable[tuple[str, Figures]]) -> Table:
    table = _table(name, "compared", "prompts differ", "sampled", "wrong", "share", "by kind")
    for label, each in rows:
        table.add_row(
            escape(label),
            f"{each.calls_compared}/{each.calls} calls",
            str(each.calls_differing),
            str(each.sampled),
            str(each.wrong),
            _share(each.wrong, each.sampled, "{}"),
            _kinds(each.wrong_by_kind),
        )
    return table


def _table(*columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))


def _share(part: int, whole: int, form: str) -> str:
    return form.format(f"{part / whole:.1%}") if whole else ""


def _kinds(counts: dict[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in Counter(counts).most_common())


def _show_difference(rollout_id: str, found: Difference, console: Console) -> None:
    """Three lines of at most 80 columns: where, then both sides below each other from the difference on."""
    place = f"{escape(rollout_id)}, {found.where}: [bold]{found.kind}[/] at token {found.index}, {found.wrong} wrong"
    console.print(place, highlight=False, soft_wrap=True)
    sides = (("held", found.held_ids, found.held), ("from text", found.rendered_ids, found.rendered))
    # The texts of a spelling are equal, so there the ids are what differs to the eye.
    spelled = [str(list(ids)) if found.kind is DriftKind.RETOKENIZATION else "" for _, ids, _ in sides]
    width = max(map(len, spelled))
    for (name, _, text), ids in zip(sides, spelled, strict=True):
        line = f"  {name:9}  {ids:{width}}{'  ' if width else ''}{text!r}"
        console.print(escape(line if len(line) <= LINE else f"{line[: LINE - 2]} …"), highlight=False, soft_wrap=True)
