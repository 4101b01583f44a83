from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("code", "path", "value"),
    [
        ("E103", ("status",), "gone"),
        ("E103", ("calls", 0, "history"), "teleported"),
        ("E103", ("calls", 0, "kind"), "robot"),
        ("E103", ("calls", 0, "finish"), "eos"),
        ("E103", ("calls", 0, "logprobs_mode"), "cooked"),
        ("E103", ("sequences", 0, "segments", 0, "kind"), "padding"),
        ("E105", ("calls", 1, "parent"), 1),
        ("E105", ("calls", 0, "head"), 1),
        ("E105", ("calls", 0, "sampling"), -1),
        ("E105", ("calls", 0, "sequence"), 2),
        ("E105", ("sequences", 0, "head"), 3),
        ("E105", ("sequences", 0, "leaf_call"), 3),
        ("E105", ("sequences", 0, "messages"), [6]),
        ("E105", ("sequences", 0, "segments", 2, "call"), 9),
        ("E105", ("heads", 0, "tools"), 1),
        ("E106", ("finished_at",), "2026-11-01T10:00:00Z"),
        ("E106", ("calls", 0, "finished_at"), "2026-11-01T10:00:00Z"),
        ("E107", ("trainable",), False),
        ("W806", ("shiny",), 1),
        ("W806", ("calls", 0, "shiny"), None),
    ],
)
def test_words_indices_numbers_and_times_that_cannot_be_are_found(damaged, codes_of, code, path, value):
    assert code in codes_of(damaged(*path, value=value))


def test_a_word_of_a_newer_minor_version_is_a_warning(example, codes_of):
    example["format_version"] = "1.3"
    example["calls"][0]["history"] = "teleported"
    assert codes_of(example) == {"W806"}
