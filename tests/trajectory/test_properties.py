"""Whatever a rollout went through, its trajectory keeps every rule of the format."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.generation import Finish, Forked, Rerendered
from turnstile.journal import RolloutStatus
from turnstile.reasons import FailReason, ForkReason, IncompleteReason, RerenderReason
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.files import read, write
from turnstile.trajectory.validate import validate

TOKENS = st.integers(3, 12)
ADDED = st.lists(TOKENS, min_size=1, max_size=5)
FORKS = [
    Forked(ForkReason.MESSAGE_EDITED, message_index=0, was="a", now="b"),
    Forked(ForkReason.REWOUND),
    Rerendered(RerenderReason.CLOSING_MISMATCH, "x"),
]


@st.composite
def completions(draw):
    """Ids, their log-probabilities, and what else is odd about them."""
    ids = draw(st.lists(TOKENS, max_size=4)) + draw(st.sampled_from([[], [2]]))
    known = st.floats(-20, 0, width=32) | st.none()
    given = draw(
        st.sampled_from(
            [
                {},
                {},
                {},
                {"logprobs_S": None},
                {"incomplete": (IncompleteReason.UPSTREAM_TRUNCATED,)},
                {"finish": Finish.ABORT},
            ]
        )
    )
    return ids, draw(st.lists(known, min_size=len(ids), max_size=len(ids))), given


def add_call(data, journal, name, refs):
    """One call that continues, cuts, forks or starts anew, and what came of it."""
    parent = data.draw(st.none() | st.sampled_from(refs), label="parent") if refs else None
    cut = data.draw(st.sampled_from([0, 0, 1]), label="cut") if parent and len(journal.runs[parent]) > 1 else 0
    fork = data.draw(st.none() | st.sampled_from(FORKS), label="fork") if refs else None
    known = [ref for ref in refs if len(journal.sampled[ref]) > 1] if fork else []
    replayed = data.draw(st.lists(st.sampled_from(known), max_size=3), label="replayed") if known else []
    lost = data.draw(st.sampled_from([0, 1]), label="lost")
    history = Forked(ForkReason.STOP_MISMATCH) if cut else fork
    journal.start(name, data.draw(ADDED, label="added"), parent, cut, history, replayed=replayed, lost=lost)
    outcome = data.draw(st.sampled_from(["turn", "turn", "turn", "choices", "fail", "open"]), label="outcome")
    if outcome == "fail":
        journal.fail(name, data.draw(st.sampled_from(FailReason)), data.draw(st.lists(TOKENS, max_size=3)))
        return []
    if outcome == "open":
        return []
    count = 3 if outcome == "choices" else 1
    drawn = [data.draw(completions(), label="completion") for _ in range(count)]
    made = [
        journal.choice(name, ids, logprobs, number=number, **odd) for number, (ids, logprobs, odd) in enumerate(drawn)
    ]
    found = journal.commit(name, *made)
    if data.draw(st.sampled_from([False, False, True]), label="undelivered"):
        journal.undelivered(name)
        if data.draw(st.booleans(), label="joined"):
            journal.joined(name)
    return found


def grow(data, journal):
    refs = []
    for number in range(data.draw(st.integers(0, 7), label="calls")):
        refs += add_call(data, journal, f"c{number}", refs)
    if data.draw(st.booleans(), label="finished"):
        journal.finish(data.draw(st.none() | st.floats(-1, 1)), data.draw(st.sampled_from([*RolloutStatus][1:])))
    return journal.forest()


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_any_forest_gives_a_trajectory_without_a_fault(data, new_journal):
    forest = grow(data, new_journal())
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
def test_any_trajectory_is_the_same_in_every_form(data, new_journal, tmp_path_factory):
    rollouts = [assemble(grow(data, new_journal())) for _ in range(data.draw(st.integers(0, 3), label="rollouts"))]
    folder = tmp_path_factory.mktemp("forms")
    write(folder / "a.jsonl", rollouts)
    write(folder / "b.parquet", read(folder / "a.jsonl"))
    write(folder / "c.jsonl", read(folder / "b.parquet"))
    assert list(read(folder / "a.jsonl")) == list(read(folder / "b.parquet")) == rollouts
    assert (folder / "a.jsonl").read_bytes() == (folder / "c.jsonl").read_bytes()
