"""Whatever a rollout went through, its trajectory keeps every rule of the format."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.files import read, write
from turnstile.trajectory.validate import validate


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_any_forest_gives_a_trajectory_without_a_fault(data, any_forest):
    forest = any_forest(data)
    rollout = assemble(forest)
    sampled = sum(len(node.choice.ids_S) for node in forest.nodes if not node.is_resumed)
    sampled += sum(state.failed.partial_count for state in forest.calls.values() if state.failed)
    assert rollout.token_counts.sampled == sampled
    assert [str(line) for line in validate(rollout) if line.code.startswith("E")] == []

    trained = Counter(
        (part.call, at)
        for sequence in rollout.sequences
        for part in sequence.segments
        if part.trainable
        for at in range(part.start, part.end)
    )
    assert set(trained.values()) <= {1}
    assert rollout.token_counts.trainable == sum(trained.values())

    by_name = {str(node.ref): node for node in forest.nodes}
    for sequence in rollout.sequences:
        leaf = by_name[rollout.calls[sequence.leaf_call].call_id]
        assert sequence.token_ids == leaf.held_T
        assert sum(sequence.loss_mask_T()) == sum(part.end - part.start for part in sequence.segments if part.trainable)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_whatever_the_user_chose_each_sampled_token_is_accounted_for_and_weighs_what_was_said(data, any_rollout):
    rollout = any_rollout(data)
    assert [str(line) for line in validate(rollout) if line.code.startswith("E")] == []
    counts = rollout.token_counts
    assert counts.sampled == counts.trainable + sum(counts.masked.values()) + sum(counts.discarded.values())
    said = rollout.extra.get("turnstile.export", {})
    by_sequence = [sum(sequence.weights_T()) for sequence in rollout.sequences]
    match said.get("weights", "token"):
        case "token" | "split":
            assert sum(by_sequence) == pytest.approx(counts.trainable)
        case "rollout":
            assert sum(by_sequence) == pytest.approx(1.0 if counts.trainable else 0.0)
        case "sequence":
            trained = [any(sequence.loss_mask_T()) for sequence in rollout.sequences]
            assert by_sequence == pytest.approx([float(each) for each in trained])
    assert not (said.get("unselected") == "trained" and "unselected_choice" in counts.discarded)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_any_trajectory_is_the_same_in_every_form(data, any_rollout, tmp_path_factory):
    rollouts = [any_rollout(data) for _ in range(data.draw(st.integers(0, 3), label="rollouts"))]
    folder = tmp_path_factory.mktemp("forms")
    write(folder / "a.jsonl", rollouts)
    write(folder / "b.parquet", read(folder / "a.jsonl"))
    write(folder / "c.jsonl", read(folder / "b.parquet"))
    assert list(read(folder / "a.jsonl")) == list(read(folder / "b.parquet")) == rollouts
    assert (folder / "a.jsonl").read_bytes() == (folder / "c.jsonl").read_bytes()
