"""Whatever a rollout went through, its trajectory keeps every rule of the format."""

from __future__ import annotations

from collections import Counter

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
