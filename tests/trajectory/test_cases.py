"""Public cases, as far as a trajectory shows them; what a client and an engine see of them is tested in tests/e2e."""

from __future__ import annotations

import itertools
import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.conversation import Usage
from turnstile.generation import Finish, Forked, LogprobsMode, NodeRef, Note, Root
from turnstile.reasons import FailReason, ForkReason, IncompleteReason, NoteCode, RootReason
from turnstile.tokens import IdRun, LogprobRun
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.files import FileForm, read, write
from turnstile.trajectory.format import decode_line, encode_line
from turnstile.trajectory.rules import Rules, Weights
from turnstile.trajectory.validate import validate

ROOT = [1, 10, 11, 20]
FORMS = [form.value for form in FileForm]


def faults(rollout):
    return [str(each) for each in validate(rollout) if each.code.startswith("E")]


def counts(rollout):
    found = rollout.token_counts
    return found.sampled, found.trainable, found.masked, found.discarded


def trained(rollout):
    """Each sequence's trained ids."""
    return [
        [token for token, mask in zip(each.token_ids, each.loss_mask_T(), strict=True) if mask]
        for each in rollout.sequences
    ]


def test_case_a1_a_call_of_which_most_ids_are_missing_is_masked_and_nothing_is_filled_in(journal):
    short = (IncompleteReason.IDS_INCOMPLETE,)
    journal.turn("a", ROOT, [30, 31, 32, 33, 34, 2], incomplete=short, usage=Usage(4, 31))
    journal.turn("b", [1, 12, 20], [60, 2], history=Forked(ForkReason.NODE_INCOMPLETE))
    rollout = assemble(journal.forest())
    assert (rollout.calls[0].complete, rollout.calls[0].incomplete_reasons) == (False, ("ids_incomplete",))
    assert (rollout.calls[0].usage.completion_tokens, rollout.sequences[0].token_ids.tolist()[4:]) == (
        31,
        [30, 31, 32, 33, 34, 2],
    )
    assert (rollout.calls[1].history_reason, trained(rollout)) == ("node_incomplete", [[], [60, 2]])
    assert counts(rollout) == (8, 2, {"incomplete_call": 6}, {})
    assert faults(rollout) == []


def test_case_a3_a_call_that_ran_another_prompt_is_in_no_sequence(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.start("b", [3, 50, 20], first)
    journal.fail("b", FailReason.ECHO_MISMATCH, [60, 61])
    rollout = assemble(journal.forest())
    assert [(call.kind, call.kind_reason, call.sequence) for call in rollout.calls] == [
        ("agent", None, 0),
        ("discarded", "echo_mismatch", None),
    ]
    assert counts(rollout) == (4, 2, {}, {"echo_mismatch": 2})
    assert faults(rollout) == []


def test_case_a4_a_special_token_that_text_hides_is_trained_with_its_own_number(journal):
    first = journal.turn("a", ROOT, [40, 99, 41, 2], logprobs=[-0.5, -4.0, -0.25, -0.125])
    journal.turn("b", [3, 50, 20], [60, 2], first)
    (sequence,) = assemble(journal.forest()).sequences
    assert sequence.token_ids.tolist()[4:8] == [40, 99, 41, 2]
    assert sequence.logprobs_T(0.0).tolist()[4:8] == [-0.5, -4.0, -0.25, -0.125]
    assert sequence.loss_mask_T().tolist()[4:8] == [1] * 4


@pytest.mark.parametrize("code", [NoteCode.TOOL_JSON_INVALID, NoteCode.TOOL_SECTION_WITHOUT_CALL])
def test_case_b1_b2_what_a_parser_could_not_make_of_ids_changes_none_of_them(journal, code):
    noted = (Note(code, "search"),)
    first = journal.turn("a", ROOT, [30, 31, 32, 2], notes=noted)
    journal.turn("b", [3, 50, 20], [60, 2], first)
    rollout = assemble(journal.forest())
    assert trained(rollout) == [[30, 31, 32, 2, 60, 2]]
    assert rollout.extra["turnstile.calls"]["a"]["notes"] == [{"code": code.value, "detail": "search"}]


def test_case_c5_after_each_edit_the_newest_sequence_trains_its_own_answer_alone(journal):
    edited = Forked(ForkReason.MESSAGE_EDITED, message_index=0, char_offset=0, was="[09:00] do X", now="do X")
    first = journal.turn("a", ROOT, [30, 2])
    journal.turn("b", [1, 12, 20], [60, 2], history=edited, replayed=[first])
    rollout = assemble(journal.forest())
    assert trained(rollout) == [[30, 2], [60, 2]]
    assert [part.call for part in rollout.sequences[1].segments if part.kind == "replayed"] == [0]
    assert rollout.calls[1].history_reason == "message_edited:0"
    assert rollout.extra["turnstile.calls"]["b"]["change"] == {
        "message_index": 0,
        "char_offset": 0,
        "was": "[09:00] do X",
        "now": "do X",
    }


def test_case_c6_sub_agents_have_sequences_of_their_own_in_whatever_order_they_call(new_journal):
    other = Root(RootReason.HEAD_CHANGED)
    first = {
        "main": ([1, 10, 20], [30, 2], ""),
        "sub-a": ([1, 11, 20], [31, 2], "a"),
        "sub-b": ([1, 12, 20], [32, 2], "b"),
    }
    second = {"main": [40, 2], "sub-a": [41, 2]}
    for order in itertools.permutations(["main", "sub-a", "sub-b", "main", "sub-a"]):
        journal, refs = new_journal(), {}
        for name in order:
            added, answer, agent = first[name]
            if name in refs:
                journal.start(f"{name}2", [3, 50, 20], refs[name], agent_name=agent)
                journal.commit(f"{name}2", journal.choice(f"{name}2", second[name]))
            else:
                journal.start(name, added, history=other, agent_name=agent)
                (refs[name],) = journal.commit(name, journal.choice(name, answer))
        rollout = assemble(journal.forest())
        rows = {each.agent_name: ids for each, ids in zip(rollout.sequences, trained(rollout), strict=True)}
        assert rows == {"main": [30, 2, 40, 2], "a": [31, 2, 41, 2], "b": [32, 2]}
        assert faults(rollout) == []


def test_case_d2_each_call_says_what_its_numbers_are_and_they_are_not_touched(journal):
    for name, mode in (("a", LogprobsMode.RAW), ("b", LogprobsMode.PROCESSED)):
        started = journal.start(name, ROOT if name == "a" else [1, 12, 20])
        draw = msgspec.structs.replace(started.draw, temperature=0.7, top_p=0.9)
        journal.records[-1] = msgspec.structs.replace(started, draw=draw)
        choice = journal.choice(name, [30, 2], [-0.5, -0.25])
        temperature = 1.0 if mode is LogprobsMode.RAW else 0.7
        journal.commit(name, msgspec.structs.replace(choice, logprobs_mode=mode, logprobs_temperature=temperature))
    rollout = assemble(journal.forest())
    assert [(call.logprobs_mode, call.logprobs_temperature) for call in rollout.calls] == [
        ("raw", 1.0),
        ("processed", 0.7),
    ]
    assert [(each.temperature, each.top_p) for each in rollout.samplings] == [(0.7, 0.9)]
    assert [each.logprobs.tolist() for each in rollout.sequences] == [[-0.5, -0.25]] * 2
    warned = [str(each) for each in validate(rollout) if each.code == "W804"]
    assert any("temperature is not in raw log-probabilities" in line for line in warned)
    assert any("top_p without kept sets" in line for line in warned)


def test_case_d4_a_close_that_nobody_sampled_is_scaffold_without_a_number(journal):
    first = journal.turn("a", ROOT, [30, 31, 32], finish=Finish.LENGTH)
    journal.turn("b", [2, 3, 50, 20], [60, 2], first)
    (sequence,) = assemble(journal.forest()).sequences
    assert trained(assemble(journal.forest())) == [[30, 31, 32, 60, 2]]
    assert (len(sequence.logprobs), sequence.loss_mask_T().tolist()[4:8]) == (5, [1, 1, 1, 0])


def test_case_l1_every_row_carries_the_whole_reward_and_rollouts_can_weigh_alike(new_journal):
    rollouts = []
    for rows, reward in ((3, 1.0), (1, 0.0)):
        journal = new_journal()
        first = journal.turn("a", ROOT, [30, 2])
        for row in range(rows):
            journal.turn(f"b{row}", [3, 50 + row, 20], [60, 2], first, history=Forked(ForkReason.REWOUND))
        journal.finish(reward=reward)
        rollouts.append(assemble(journal.forest(), Rules(weights=Weights.ROLLOUT)))
    assert [(len(each.sequences), each.reward) for each in rollouts] == [(3, 1.0), (1, 0.0)]
    assert [[sequence.reward for sequence in each.sequences] for each in rollouts] == [[None] * 3, [None]]
    assert [sum(sum(sequence.weights_T()) for sequence in each.sequences) for each in rollouts] == [
        pytest.approx(1.0),
        pytest.approx(1.0),
    ]


def test_case_l1_a_reward_that_nobody_gave_stays_absent(journal):
    journal.turn("a", ROOT, [30, 2])
    journal.finish(reward=None)
    assert json.loads(encode_line(assemble(journal.forest())))["reward"] is None


@pytest.mark.parametrize("partial", [list(range(30, 70)), [69], []], ids=["40 ids", "the last id", "none"])
def test_case_l3_what_a_weight_update_broke_off_is_discarded_and_never_a_stop(journal, partial):
    journal.start("a", ROOT)
    journal.fail("a", FailReason.ENGINE_BROKEN, partial)
    journal.turn("b", ROOT, [60, 2])
    rollout = assemble(journal.forest())
    assert [(call.kind, call.finish) for call in rollout.calls] == [("discarded", "error"), ("agent", "stop")]
    discarded = {"engine_broken": len(partial)} if partial else {}
    assert (trained(rollout), counts(rollout)) == ([[60, 2]], (2 + len(partial), 2, {}, discarded))
    assert faults(rollout) == []


def test_case_l3_an_answer_that_ended_in_an_abort_is_masked(journal):
    journal.turn("a", ROOT, list(range(30, 70)), finish=Finish.ABORT)
    rollout = assemble(journal.forest())
    assert (rollout.calls[0].finish, counts(rollout)) == ("abort", (40, 0, {"aborted": 40}, {}))
    assert faults(rollout) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(
    prompt=st.lists(st.integers(3, 120), min_size=1, max_size=6),
    values=st.lists(st.floats(-20, 0, width=32), min_size=1, max_size=8, unique=True),
)
def test_case_l4_each_number_stands_at_its_own_token_in_every_form(new_journal, tmp_path_factory, prompt, values):
    journal = new_journal()
    ids = [130 + at for at in range(len(values))]
    journal.turn("a", prompt, ids, logprobs=values)
    rollout = assemble(journal.forest())
    folder = tmp_path_factory.mktemp("rows")
    for ending in FORMS:
        write(folder / f"a{ending}", [rollout])
        ((sequence,),) = [each.sequences for each in read(folder / f"a{ending}")]
        found = dict(zip(sequence.token_ids, sequence.logprobs_T(9.0), strict=True))
        assert {token: found[token] for token in ids} == dict(zip(ids, values, strict=True))
        assert sequence.loss_mask_T().tolist() == [0] * len(prompt) + [1] * len(ids)


def test_case_l4_a_rollout_of_failures_has_no_row_and_stays_in_its_group(journal, tmp_path):
    for name in "ab":
        journal.start(name, ROOT)
        journal.fail(name, FailReason.ENGINE_UNREACHABLE, [])
    journal.finish(reward=None)
    journal.records[0] = msgspec.structs.replace(journal.records[0], group_id="g")
    for ending in FORMS:
        write(tmp_path / f"a{ending}", [assemble(journal.forest())])
        (found,) = read(tmp_path / f"a{ending}")
        assert (found.group_id, found.status, found.sequences, len(found.calls)) == ("g", "completed", (), 2)


def test_the_ids_of_the_record_are_those_of_the_forest_and_of_no_text(journal):
    ref = journal.turn("a", ROOT, [30, 2])
    line = encode_line(assemble(journal.forest()))
    assert decode_line(line).sequences[0].token_ids == IdRun.of([*ROOT, 30, 2]) == journal.runs[ref]
    assert (ref, decode_line(line).sequences[0].logprobs) == (NodeRef("a"), LogprobRun.of([-0.5, -1.5]))
