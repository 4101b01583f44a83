from __future__ import annotations

import pytest

from turnstile.generation import NodeRef
from turnstile.trajectory.summaries import used_summaries

SUMMARY = "A man asked for the sum of two and two."


def test_a_summary_is_used_where_a_later_turn_quotes_it(journal, compacted):
    compacted(SUMMARY)
    assert used_summaries(journal.forest()) == {NodeRef("s")}


@pytest.mark.parametrize(
    ("answer", "quoted", "is_used"),
    [
        ("<analysis>\nWhat was said.\n</analysis>\n<summary>\nThe sum was asked for.\n</summary>", "", True),
        (f"{SUMMARY}\nOk.", "", True),
        ("4", "2+2 is 4", True),
        ("", "", False),
        (SUMMARY, "Another talk.", False),
    ],
    ids=["tags", "short last line", "short answer", "empty", "not quoted"],
)
def test_a_summary_is_known_by_its_last_line_of_some_length(journal, compacted, answer, quoted, is_used):
    compacted(answer, quoted or "Go on from: The sum was asked for. " + SUMMARY)
    assert bool(used_summaries(journal.forest())) is is_used


def test_a_summary_that_only_a_failed_call_quotes_is_not_used(journal, compacted):
    compacted(SUMMARY)
    journal.records = [each for each in journal.records if getattr(each, "call_id", "") != "b" or hasattr(each, "head")]
    assert used_summaries(journal.forest()) == frozenset()
