from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("code", "path", "value"),
    [
        ("E202", ("sequences", 0, "segments", 6, "end"), 21),
        ("E202", ("sequences", 0, "segments", 6, "end"), 23),
        ("E203", ("sequences", 0, "segments", 2, "call"), None),
        ("E204", ("sequences", 0, "segments", 3, "trainable"), True),
        ("E205", ("sequences", 1, "segments", 2, "mask_reason"), None),
        ("E206", ("sequences", 0, "prompt_length"), 8),
        ("E207", ("sequences", 0, "token_ids", 1), 128),
        ("E207", ("sequences", 0, "token_ids", 1), -1),
        ("E209", ("sequences", 0, "segments", 2, "policy_version_min"), 8),
        ("E209", ("sequences", 0, "segments", 2, "policy_version_min"), None),
        ("E301", ("sequences", 0, "token_weights"), [1.0]),
        ("E301", ("sequences", 0, "advantages"), [1.0]),
        ("E302", ("sequences", 0, "logprobs", 0), 0.5),
        ("E302", ("sequences", 0, "logprobs", 0), -1e39),
        ("E303", ("sequences", 0, "logprobs", 3), None),
        ("E304", ("sequences", 0, "segments", 2, "weight"), -0.5),
        ("E304", ("sequences", 0, "token_weights"), [1, 1, 1, 1, 1, 1, -1]),
        ("E305", ("calls", 0, "logprobs_mode"), "none"),
        ("E305", ("calls", 0, "logprobs_mode"), "unknown"),
    ],
)
def test_segments_and_numbers_that_cannot_be_are_found(damaged, codes_of, code, path, value):
    assert code in codes_of(damaged(*path, value=value))


def test_a_moved_border_is_found_and_nothing_is_said_twice(damaged, lines_of):
    fields = damaged("sequences", 0, "segments", 3, "start", value=12)
    assert lines_of(fields) == ["E201 ro-0001 0 11 gap, overlap or empty segment at token 11"]


def test_a_dropped_number_is_lines_of(damaged, lines_of):
    fields = damaged("sequences", 0, "logprobs", value=[-0.25, -1.5, -0.125, -0.0625, -0.75, -0.5])
    assert lines_of(fields) == ["E301 ro-0001 0 - 6 log-probabilities for 7 sampled tokens"]


def test_a_sentinel_is_no_log_probability(damaged, lines_of):
    fields = damaged("sequences", 0, "logprobs", 2, value=-9999.0)
    assert lines_of(fields) == ["E302 ro-0001 0 2 log-probability -9999 at sampled token 2"]


def test_a_sequence_that_is_empty_covers_nothing(example, codes_of):
    example["sequences"][0] |= {"token_ids": [], "segments": [], "logprobs": []}
    assert "E202" in codes_of(example)


def test_a_completion_in_pieces_is_lines_of(example, codes_of):
    segments = example["sequences"][0]["segments"]
    segments[3] = {**segments[3], "kind": "sampled", "call": 1, "mask_reason": "user:x"}
    assert "E208" in codes_of(example)


def test_a_completion_may_be_cut_into_adjacent_segments(example, lines_of):
    segments = example["sequences"][0]["segments"]
    segments[2:3] = [{**segments[2], "end": 8}, {**segments[2], "start": 8}]
    assert lines_of(example) == []


def test_one_masked_token_between_others_is_no_fault(example, lines_of):
    segments = example["sequences"][0]["segments"]
    hidden = {"trainable": False, "mask_reason": "logprob_missing"}
    segments[2:3] = [
        {**segments[2], "end": 8},
        {**segments[2], "start": 8, "end": 9, **hidden},
        {**segments[2], "start": 9},
    ]
    example["sequences"][0]["logprobs"][1] = None
    example["token_counts"] |= {"trainable": 8, "masked": {"logprob_missing": 1}}
    assert lines_of(example) == []
