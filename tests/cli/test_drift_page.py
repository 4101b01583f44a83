"""The drift report as a person reads it."""

from __future__ import annotations

import io

from rich.console import Console

from turnstile.cli.drift_page import LINE, SHOWN, show, show_calls, show_rollouts
from turnstile.reports.drift import CallDrift, Difference, Drift, DriftKind


def page(reports: list[Drift], show: object = show) -> list[str]:
    written = io.StringIO()
    show(reports, Console(file=written, width=140))  # type: ignore[operator]
    return written.getvalue().splitlines()


PLACE = Difference("prompt of c1", DriftKind.RETOKENIZATION, 7, 3, "A\n\nB" * 40, "A\n\nB", (198, 198), (271,))
DRIFTED = Drift(
    rollout_id="r[1]",
    group_id="g",
    calls=4,
    calls_compared=2,
    calls_differing=1,
    prompt_sampled=8,
    prompt_wrong=3,
    sequences=1,
    sequences_compared=1,
    sequences_differing=1,
    sampled=10,
    wrong=5,
    wrong_by_kind={"json": 1, "retokenization": 4},
    by_call=(CallDrift("c1", "spliced", 20, 8, 3, DriftKind.RETOKENIZATION, 7),),
    differences=(PLACE,),
)


def test_the_sum_says_what_share_was_compared_and_the_largest_kind_comes_first() -> None:
    assert page([DRIFTED])[:6] == [
        "5 of 10 sampled tokens (50.0%) would have been trained wrongly from text:",
        "they stand at or behind the first id that differs.",
        "1 of 2 prompts would have been other ids:",
        "3 of 8 sampled tokens in them (37.5%) at another place or not there.",
        "Compared: 2 of 4 calls, 1 of 1 sequence, in 1 rollout.",
        "By kind: retokenization 4, json 1",
    ]


def test_a_place_is_three_lines_of_80_columns() -> None:
    first, held, rendered = page([DRIFTED])[6:9]
    assert first == "r[1], prompt of c1: retokenization at token 7, 3 wrong"
    assert held.startswith("  held       [198, 198]  'A") and held.endswith(" …") and len(held) <= LINE
    assert rendered == "  from text  [271]       'A\\n\\nB'"


def test_more_places_than_fit_are_counted() -> None:
    many = Drift(rollout_id="r", calls_differing=1, differences=(PLACE,) * (SHOWN + 3))
    assert page([many])[-1] == "... and 3 more; `turnstile drift --json` shows all."


def test_rollouts_without_drift_are_said_to_have_none() -> None:
    assert page([Drift(rollout_id="r", calls=1, calls_compared=1)])[-1].startswith("No drift: ")


def test_a_later_attempt_is_named_and_an_equal_call_is_said_to_be_equal() -> None:
    equal = CallDrift("c0", "root", 9, 0, 0, None, None)
    again = Drift(rollout_id="r", attempt=2, by_call=(equal,))
    assert page([again], show_rollouts)[1].startswith("r attempt 2  0/0 calls")
    assert page([again], show_calls)[1].split() == ["r", "c0", "root", "9", "0", "0", "equal"]
