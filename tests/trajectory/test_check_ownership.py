from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("code", "path", "value"),
    [
        ("E502", ("calls", 1, "kind"), "auxiliary"),
        ("E503", ("calls", 1, "sequence"), 1),
        ("E504", ("calls", 1, "sequence"), None),
        ("E504", ("calls", 1, "sequence"), 1),
        ("E505", ("token_counts", "sampled"), 10),
        ("E505", ("token_counts", "trainable"), 8),
        ("E505", ("token_counts", "masked"), {"aborted": 1}),
        ("E506", ("calls", 1, "complete"), False),
        ("E506", ("calls", 1, "finish"), "error"),
        ("E506", ("sequences", 0, "complete"), False),
    ],
)
def test_tokens_that_are_lost_or_counted_wrongly_are_found(damaged, codes_of, code, path, value):
    assert code in codes_of(damaged(*path, value=value))


def test_a_call_trained_twice_is_lines_of(damaged, lines_of):
    fields = damaged("sequences", 1, "segments", 2, "trainable", value=True)
    assert lines_of(fields) == [
        "E501 ro-0001 1 - call c0 is trained in sequences 0 and 1",
        "E503 ro-0001 1 - call c0 says sequence 0, found in 1",
    ]


def test_shares_of_one_call_in_two_sequences_are_allowed_if_each_is_less_than_whole(example, lines_of):
    for sequence in example["sequences"]:
        sequence["segments"][2] |= {"trainable": True, "weight": 0.5}
    del example["sequences"][1]["segments"][2]["mask_reason"]
    assert lines_of(example) == []


@pytest.mark.parametrize("weight", [0.2, 0.75])
def test_shares_that_do_not_add_up_to_one_are_a_call_trained_twice(example, lines_of, weight):
    # As in a file of `--weights rollout` or `sequence`, in which every weight is less than 1.
    for sequence in example["sequences"]:
        sequence["segments"][2] |= {"trainable": True, "weight": weight}
    del example["sequences"][1]["segments"][2]["mask_reason"]
    assert lines_of(example) == [
        "E501 ro-0001 1 - call c0 is trained in sequences 0 and 1",
        "E503 ro-0001 1 - call c0 says sequence 0, found in 1",
    ]


def test_the_beginning_of_an_aborted_answer_may_be_trained_where_it_is_complete(damaged, lines_of):
    assert lines_of(damaged("calls", 0, "finish", value="abort")) == []
