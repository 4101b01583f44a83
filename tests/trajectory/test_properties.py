"""Whatever a rollout went through, its trajectory keeps every rule of the format."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.files import read, write
from turnstile.trajectory.shapes import ArrayEntry, Float32Run, MediaEntry
from turnstile.trajectory.validate import validate


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
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
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
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


TEXTS = st.text(max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
NEWER = st.just({}) | st.dictionaries(st.sampled_from(["shiny", "unknown", "é"]), JSON, max_size=2)
SHA256 = st.text("0123456789abcdef", min_size=64, max_size=64)
COUNT = st.integers(0, 2**31 - 1)
MEDIA = st.builds(
    MediaEntry,
    unknown=NEWER,
    sha256=SHA256,
    mime=TEXTS,
    kind=st.sampled_from(["image", "video", "audio", "scene"]),
    offset=COUNT,
    length=COUNT,
    num_tokens=COUNT,
    placeholder_id=COUNT,
    width=st.none() | COUNT,
    height=st.none() | COUNT,
)
ARRAYS = st.builds(
    ArrayEntry,
    unknown=NEWER,
    uri=TEXTS,
    sha256=SHA256,
    dtype=TEXTS,
    shape=st.lists(COUNT, max_size=3).map(tuple),
    axis=st.sampled_from(["tokens", "sampled"]),
    start=COUNT,
    end=COUNT,
)
FLOATS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=5).map(Float32Run.of)


@st.composite
def beside(draw, sequence):
    """A sequence with anything that a file may hold beside what a forest gives."""
    return msgspec.structs.replace(
        sequence,
        unknown=draw(NEWER),
        token_weights=draw(st.none() | FLOATS),
        advantages=draw(st.none() | FLOATS),
        reward=draw(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
        media=tuple(draw(st.lists(MEDIA, max_size=2))),
        arrays=draw(st.dictionaries(st.sampled_from(["routed_experts", "kept_ids", "é"]), ARRAYS, max_size=2)),
    )


@st.composite
def decorated(draw, rollout):
    return msgspec.structs.replace(
        rollout,
        unknown=draw(NEWER),
        rewards=draw(st.dictionaries(TEXTS, st.none() | st.floats(-1, 1), max_size=2)),
        sequences=tuple(draw(beside(sequence)) for sequence in rollout.sequences),
        extra=rollout.extra | {"myorg.x": draw(JSON)},
    )


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_any_trajectory_is_the_same_in_every_form(data, any_rollout, tmp_path_factory):
    count = data.draw(st.integers(0, 3), label="rollouts")
    rollouts = [data.draw(decorated(any_rollout(data)), label="beside") for _ in range(count)]
    folder = tmp_path_factory.mktemp("forms")
    write(folder / "a.jsonl", rollouts)
    write(folder / "b.parquet", read(folder / "a.jsonl"))
    write(folder / "c.jsonl.zst", read(folder / "b.parquet"))
    write(folder / "d.jsonl", read(folder / "c.jsonl.zst"))
    for name in ("a.jsonl", "b.parquet", "c.jsonl.zst"):
        assert list(read(folder / name)) == rollouts
    assert (folder / "a.jsonl").read_bytes() == (folder / "d.jsonl").read_bytes()
