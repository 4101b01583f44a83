"""A replay as a person reads it."""

from __future__ import annotations

import io

from rich.console import Console

from turnstile.cli.replay_page import SHOWN, show_replay
from turnstile.reports.replay_outcome import CallReplay, PromptDifference, ReplayReport, Side, Skipped

SIDE = Side(2, 1, 1, 0, 0, 30, 40)
EQUAL = CallReplay("c0", "root", "root", 10, 10, None, "answered")
OTHER = CallReplay(
    "c1", "spliced", "forked:retention", 20, 18, PromptDifference(7, "a[b", "ac", (1,), (2,)), "answered"
)
REFUSED = CallReplay("c2", "spliced", "refused:render_failed", 20, 0, None, "failed:internal", "No. Do.")


def page(*calls: CallReplay, skipped: tuple[Skipped, ...] = ()) -> list[str]:
    written = io.StringIO()
    differing = sum(not call.is_equal for call in calls)
    report = ReplayReport("r", 1, calls, differing, skipped, SIDE, SIDE)
    show_replay(report, Console(file=written, width=140))
    return [line.rstrip() for line in written.getvalue().splitlines()]


def test_an_equal_replay_is_one_line_and_what_was_left_out() -> None:
    assert page(EQUAL, skipped=(Skipped("a request", "it came late"),)) == [
        "equal  r: all ids of 1 prompt are the recorded ones.",
        "Not replayed: a request; it came late",
    ]


def test_a_difference_is_shown_first_then_every_call_and_the_sums() -> None:
    lines = page(EQUAL, OTHER)
    assert lines[:6] == [
        "different  r: 1 of 2 prompts is not as recorded.",
        "First: prompt of c1 at token 7",
        "  recorded  'a[b'",
        "            [1]",
        "  now       'ac'",
        "            [2]",
    ]
    assert lines[8].split() == ["c1", "spliced", "forked:retention", "20", "18", "from", "token", "7", "answered"]
    assert [line.split() for line in lines if line.startswith("prompt tokens")] == [["prompt", "tokens", "30", "30"]]


def test_a_call_that_cannot_be_planned_says_why() -> None:
    lines = page(REFUSED)
    assert lines[1] == "First: prompt of c2 cannot be planned. No. Do."
    assert lines[3].split() == ["c2", "spliced", "refused:render_failed", "20", "-", "none", "failed:internal"]


def test_of_many_calls_those_that_differ_are_shown() -> None:
    lines = page(*[EQUAL] * SHOWN, OTHER)
    assert any(line.startswith("c1") for line in lines)
    assert "... and 1 more; --json shows all." in lines
