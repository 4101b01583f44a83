"""The fold of records into a forest."""

from __future__ import annotations

import gc
import weakref
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.conversation import Message, Role, Text
from turnstile.errors import StoreError
from turnstile.generation import NodeRef
from turnstile.history.forest import Forest
from turnstile.journal import (
    AnswerUndelivered,
    CallFailed,
    CallJoined,
    CallRejected,
    RolloutFinished,
    RolloutOpened,
    RolloutStatus,
    TurnCommitted,
    decode,
    encode,
)
from turnstile.reasons import DiscardReason, FailReason, IncompleteReason
from turnstile.tokens import IdRun, SegmentKind, tile

NOW = datetime(2026, 12, 1, tzinfo=UTC)
OPENED = RolloutOpened("r", 1, NOW)
FINISHED = RolloutFinished("r", NOW, RolloutStatus.COMPLETED, reward=1.0)
REJECTED = CallRejected("r", NOW, "closed")
REFUSED = CallFailed("r", "", NOW, FailReason.REFUSED, "no messages")


def talk(new_dialogue, steps):
    """Play some steps of several clients; (client, step, text)."""
    main = new_dialogue.fresh()
    clients = [main, main.other(), main.other()]
    for who, step, text in steps:
        client = clients[who]
        if step == "rewind":
            client.back_to(len(client.messages) // 2)
        elif step == "sampled":
            client.sampled(f"answer {text}", ("f", f'{{"x":{text}}}')).tool(f"result {text}")
        elif step == "fail":
            client.user("try").fail()
        else:
            client.user(f"{step} {text}")
    return main


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["user", "sampled", "sampled", "rewind", "fail"]), st.integers(0, 3)),
    max_size=20,
)


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_the_same_records_always_make_an_equal_forest(new_dialogue, steps):
    main = talk(new_dialogue, steps)
    restarted = Forest.of(decode(encode(record)) for record in main.records)
    assert restarted == main.forest
    assert [node.held_T for node in restarted.nodes] == [node.held_T for node in main.forest.nodes]


@given(STEPS, st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_a_forest_that_grew_live_equals_one_that_was_restarted_on_the_way(new_dialogue, steps, at):
    records = talk(new_dialogue, steps).records
    forest = Forest.of(records[:at])
    for record in records[at:]:
        forest.apply(record)
    assert forest == Forest.of(records)


@given(STEPS)
@settings(max_examples=50, deadline=None)
def test_a_forest_that_nobody_holds_leaves_memory_without_the_collector(new_dialogue, steps):
    forest = Forest.of(talk(new_dialogue, steps).records)
    alive = [weakref.ref(node) for node in forest.nodes]
    gc.disable()
    try:
        del forest
        assert not [node for reference in alive if (node := reference()) is not None]
    finally:
        gc.enable()


def test_forests_of_other_records_differ(dialogue):
    dialogue.user("a").sampled("b")
    assert Forest.of(dialogue.records[:1]) != dialogue.forest
    assert Forest() != dialogue.forest


def test_lifecycle_records_are_kept():
    forest = Forest.of([OPENED, REFUSED, FINISHED, REJECTED])
    assert (forest.opened, forest.finished) == (OPENED, FINISHED)
    assert (list(forest.refused), list(forest.rejected), forest.call_count) == ([REFUSED], [REJECTED], 0)


def test_calls_stand_in_order_of_start_and_nodes_in_order_of_commit(dialogue):
    first, second = dialogue.user("a").start(), dialogue.other().user("b").start()
    answer = Message(Role.ASSISTANT, (Text("x"),))
    dialogue.commit(second, answer).commit(first, answer, answer)
    assert list(dialogue.forest.calls) == ["c1", "c2"]
    assert [node.ref for node in dialogue.forest.nodes] == [NodeRef("c2"), NodeRef("c1"), NodeRef("c1", 1)]
    assert [node.ref for node in dialogue.forest.latest(2)] == [NodeRef("c1", 1), NodeRef("c1")]
    assert dialogue.forest.node(NodeRef("c1", 1)).choice.choice == 1


def test_what_happens_to_a_call_is_kept_with_it(dialogue):
    dialogue.user("a").sampled("b").undelivered()
    joined = CallJoined("r", NOW, "c1", "replayed")
    dialogue.keep(joined)
    state = dialogue.forest.calls["c1"]
    assert state.joined == (joined,)
    assert state.undelivered == AnswerUndelivered("r", "c1", NOW, DiscardReason.CLIENT_GONE)
    assert (state.committed, state.failed, state.is_open) == (dialogue.records[1], None, False)


def test_a_call_without_an_end_is_open_until_it_fails(dialogue):
    started = dialogue.user("a").start()
    assert dialogue.forest.open_calls == (started,)
    failed = CallFailed("r", "c1", NOW, FailReason.INTERRUPTED, "restart")
    dialogue.keep(failed)
    assert dialogue.forest.open_calls == ()
    assert dialogue.forest.calls["c1"].failed == failed
    assert dialogue.forest.nodes == ()


def test_the_hash_of_a_prompt_is_that_of_its_ids_whatever_of_the_parents_path_it_keeps(dialogue):
    dialogue.user("a").sampled("b").user("c").sampled("d")
    forest, parent = dialogue.forest, dialogue.ref
    whole_T, added_A = forest.node(parent).held_T, IdRun.of([7, 8])
    other_T = IdRun.of([9]) + whole_T.slice(1)
    for held_T in (whole_T, whole_T.slice(0, 4), other_T, IdRun()):
        assert forest.prompt_sha256(parent, held_T, added_A) == (held_T + added_A).sha256()
    assert forest.prompt_sha256(None, IdRun(), added_A) == added_A.sha256()


def test_heads_are_kept_once_in_order_of_use(dialogue):
    dialogue.user("a").sampled("b")
    dialogue.head_name = "other"
    dialogue.sampled("c").sampled("d")
    assert list(dialogue.forest.heads) == ["main", "other"]


def test_an_incomplete_answer_is_held_and_marked(dialogue):
    dialogue.user("a").sampled("b", incomplete=(IncompleteReason.COUNT_MISMATCH,))
    assert [node.is_incomplete for node in dialogue.forest.nodes] == [True]


def test_a_prompt_names_one_held_answer_for_each_segment_that_was_put_back(dialogue):
    dialogue.user("a").sampled("b").user("c")
    started = msgspec.structs.replace(dialogue.start(), call_id="next")
    segments = tile([(1, SegmentKind.SCAFFOLD), (2, SegmentKind.REPLAYED)])
    put_back = msgspec.structs.replace(started, added_segments=segments, replayed=(dialogue.ref,))
    dialogue.forest.check(put_back)
    for contradiction in [
        msgspec.structs.replace(put_back, replayed=()),
        msgspec.structs.replace(put_back, replayed=(dialogue.ref, dialogue.ref)),
        msgspec.structs.replace(put_back, replayed=(NodeRef("unknown"),)),
        msgspec.structs.replace(started, replayed=(dialogue.ref,)),
    ]:
        with pytest.raises(StoreError):
            dialogue.forest.check(contradiction)


def test_records_that_contradict_are_refused_and_change_nothing(dialogue):
    dialogue.keep(OPENED)
    dialogue.user("a").sampled("b").user("c").start()
    started, committed, second = dialogue.records[1:]
    for record in [
        OPENED,
        started,
        committed,
        CallFailed("r", "c1", NOW, FailReason.INTERRUPTED, "restart"),
        TurnCommitted("r", "unknown", NOW, ()),
        CallJoined("r", NOW, "unknown", "replayed"),
        AnswerUndelivered("r", "unknown", NOW, DiscardReason.CLIENT_GONE),
    ]:
        with pytest.raises(StoreError):
            dialogue.forest.apply(record)
    with pytest.raises(StoreError):
        Forest.of([second])
    assert Forest.of(dialogue.records) == dialogue.forest
