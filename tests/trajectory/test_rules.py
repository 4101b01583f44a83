from __future__ import annotations

import json

import msgspec
import pytest

from turnstile.conversation import CallKind
from turnstile.generation import Forked
from turnstile.reasons import ForkReason
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.format import decode_line
from turnstile.trajectory.rules import Compaction, Rules, Unselected, Weights, weighted
from turnstile.trajectory.validate import validate

ROOT = [1, 10, 11, 20]


def faults(rollout):
    return [str(each) for each in validate(rollout) if each.code.startswith("E")]


def weights(rollout):
    return [[weight for weight in sequence.weights_T() if weight] for sequence in rollout.sequences]


@pytest.fixture
def forked(journal):
    """An answer that two others go on from: sequences of 2 + 3 and 2 + 1 sampled tokens."""
    first = journal.turn("a", ROOT, [30, 2])
    journal.turn("b", [3, 50, 20], [60, 61, 2], first)
    journal.turn("c", [3, 51, 20], [2], first, history=Forked(ForkReason.MESSAGE_EDITED, message_index=2))
    return journal.forest()


def test_by_default_each_token_weighs_one_in_the_sequence_that_owns_it(forked):
    rollout = assemble(forked)
    assert weights(rollout) == [[1.0] * 5, [1.0]]
    assert "turnstile.export" not in rollout.extra


def test_a_split_token_is_trained_in_each_sequence_that_holds_it_and_counts_once(forked):
    rollout = assemble(forked, Rules(weights=Weights.SPLIT))
    assert weights(rollout) == [[0.5, 0.5, 1.0, 1.0, 1.0], [0.5, 0.5, 1.0]]
    counts = rollout.token_counts
    assert (counts.sampled, counts.trainable, counts.masked, counts.discarded) == (6, 6, {}, {})
    assert faults(rollout) == []
    assert rollout.extra["turnstile.export"] == {"weights": "split"}


def test_nothing_is_split_with_a_sequence_that_cut_the_answer_off_or_that_a_harness_asked_for(journal):
    first = journal.turn("a", ROOT, [30, 31, 2])
    journal.turn("b", [3, 50, 20], [60, 2], first, cut=1, history=Forked(ForkReason.STOP_MISMATCH))
    journal.start("t", [3, 52, 20], first, kind=CallKind.AUXILIARY, purpose="title")
    journal.commit("t", journal.choice("t", [70, 2]))
    rollout = assemble(journal.forest(), Rules(weights=Weights.SPLIT))
    assert weights(rollout) == [[1.0, 1.0, 1.0], [1.0, 1.0], []]
    assert faults(rollout) == []


def test_the_weights_of_a_rollout_or_of_a_sequence_add_up_to_one(forked):
    by_rollout = assemble(forked, Rules(weights=Weights.ROLLOUT))
    by_sequence = assemble(forked, Rules(weights=Weights.SEQUENCE))
    assert weights(by_rollout) == [[pytest.approx(1 / 6)] * 5, [pytest.approx(1 / 6)]]
    assert weights(by_sequence) == [[pytest.approx(1 / 5)] * 5, [1.0]]
    assert faults(by_rollout) == faults(by_sequence) == []


def test_a_sequence_without_a_trained_token_keeps_its_weights(example):
    sequences = decode_line(json.dumps(example).encode()).sequences
    bare = msgspec.structs.replace(sequences[0], segments=sequences[0].segments[:2])
    assert weighted((bare,), Weights.SEQUENCE) == (bare,)


def test_choices_that_were_not_taken_up_are_trained_on_request(journal):
    journal.start("a", ROOT)
    refs = journal.commit("a", *(journal.choice("a", [30 + number, 2], number=number) for number in range(2)))
    journal.turn("b", [3, 50, 20], [60, 2], refs[1])
    rollout = assemble(journal.forest(), Rules(unselected=Unselected.TRAINED))
    assert [(call.call_id, call.kind, call.sequence) for call in rollout.calls] == [
        ("a", "agent", 0),
        ("a.1", "agent", 1),
        ("b", "agent", 1),
    ]
    assert (rollout.token_counts.sampled, rollout.token_counts.trainable) == (6, 6)
    assert faults(rollout) == []
    assert rollout.extra["turnstile.export"] == {"unselected": "trained"}


def test_a_summary_is_trained_on_request_at_the_end_of_its_old_path(journal, compacted):
    compacted("A man asked for the sum of two and two.")
    usual = assemble(journal.forest())
    assert [(call.kind, call.sequence) for call in usual.calls] == [("agent", 0), ("auxiliary", 1), ("agent", 2)]
    rollout = assemble(journal.forest(), Rules(compaction=Compaction.TRAINED))
    assert [(call.kind, call.kind_reason, call.sequence) for call in rollout.calls] == [
        ("agent", None, 0),
        ("agent", "compaction", 0),
        ("agent", None, 1),
    ]
    assert [sum(sequence.loss_mask_T()) for sequence in rollout.sequences] == [5, 2]
    assert faults(rollout) == []
    assert rollout.extra["turnstile.export"] == {"compaction": "trained"}


def test_a_summary_that_nothing_went_on_from_is_not_trained(journal, compacted):
    compacted("Something else.")
    rollout = assemble(journal.forest(), Rules(compaction=Compaction.TRAINED))
    assert [call.kind for call in rollout.calls] == ["agent", "auxiliary", "agent"]
