from __future__ import annotations

import json

import msgspec

from turnstile.tokens import LogprobRun
from turnstile.trajectory.float32 import Float32Run
from turnstile.trajectory.format import decode_line


def sequences(example):
    return decode_line(json.dumps(example).encode()).sequences


def test_the_loss_mask_marks_trainable_sampled_tokens_alone(example):
    first, second = sequences(example)
    assert first.loss_mask_T().tolist() == [0] * 7 + [1] * 4 + [0] * 8 + [1] * 3
    assert second.loss_mask_T().tolist() == [0] * 19 + [1] * 2


def test_log_probabilities_stand_at_their_own_token(example):
    example["sequences"][1]["logprobs"][0] = None
    _, second = sequences(example)
    expected = [9.0] * 8 + [-1.5, -0.125, -0.0625] + [9.0] * 8 + [-2.0, -0.0078125]
    assert second.logprobs_T(9.0).tolist() == expected


def test_weights_are_segment_times_token_weight_where_trainable(example):
    first, second = sequences(example)
    assert second.weights_T().tolist() == [0.0] * 19 + [1.0] * 2
    halved = msgspec.structs.replace(
        first,
        segments=(*first.segments[:2], msgspec.structs.replace(first.segments[2], weight=0.5), *first.segments[3:]),
        token_weights=Float32Run.of([1, 2, 3, 4, 5, 6, 7]),
    )
    assert halved.weights_T().tolist() == [0.0] * 7 + [0.5, 1.0, 1.5, 2.0] + [0.0] * 8 + [5.0, 6.0, 7.0]


def test_versions_are_minus_one_where_nothing_was_sampled_or_known(example):
    example["sequences"][1]["segments"][2] |= {"policy_version_min": None, "policy_version_max": None}
    assert sequences(example)[1].versions_T().tolist() == [-1] * 19 + [7] * 2


def test_a_sequence_without_sampled_tokens_has_empty_dense_forms_of_its_length(example):
    first = msgspec.structs.replace(sequences(example)[0], segments=(), logprobs=LogprobRun())
    assert first.loss_mask_T().tolist() == [0] * 22
    assert first.logprobs_T(0.0).tolist() == [0.0] * 22
