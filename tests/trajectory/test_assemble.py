from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from turnstile.conversation import Message, Role, Text
from turnstile.errors import StoreError
from turnstile.generation import FinishedItem, Forked, LogprobsMode, NodeRef, Note
from turnstile.history.forest import Forest
from turnstile.journal import AnswerResumed, CallFailed, PartialChoice, RolloutStatus, SuspectLogprobs
from turnstile.reasons import FailReason, ForkReason, IncompleteReason, NoteCode
from turnstile.tokens import IdRun, LogprobRun
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.files import FileForm, read, write
from turnstile.trajectory.validate import validate

ROOT = [1, 10, 11, 20]


def edited(index=2) -> Forked:
    return Forked(ForkReason.MESSAGE_EDITED, message_index=index, char_offset=3, was="4", now="error")


def told(rollout):
    """Each sequence as (ids, [(kind, start, end, call, trainable or mask reason)])."""
    return [
        (
            sequence.token_ids.tolist(),
            [
                (part.kind, part.start, part.end, part.call, "train" if part.trainable else part.mask_reason)
                for part in sequence.segments
            ],
        )
        for sequence in rollout.sequences
    ]


def counts(rollout):
    found = rollout.token_counts
    return found.sampled, found.trainable, found.masked, found.discarded


def extra(rollout, call_id):
    return rollout.extra["turnstile.calls"][call_id]


def test_append_only_turns_are_one_sequence_with_all_completions_trainable(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.turn("b", [3, 50, 20], [60, 61, 2], first)
    journal.finish()
    rollout = assemble(journal.forest())
    assert told(rollout) == [
        (
            [*ROOT, 30, 2, 3, 50, 20, 60, 61, 2],
            [
                ("prompt", 0, 2, None, None),
                ("scaffold", 2, 4, None, None),
                ("sampled", 4, 6, 0, "train"),
                ("observation", 6, 7, None, None),
                ("scaffold", 7, 9, None, None),
                ("sampled", 9, 12, 1, "train"),
            ],
        )
    ]
    sequence = rollout.sequences[0]
    assert sequence.logprobs.tolist() == [-0.5, -1.5, -0.5, -1.5, -2.5]
    assert (sequence.prompt_length, sequence.leaf_call, sequence.sequence_id) == (4, 1, "ro/0")
    assert [(call.call_id, call.parent, call.history, call.sequence) for call in rollout.calls] == [
        ("a", None, "root", 0),
        ("b", 0, "spliced", 0),
    ]
    assert counts(rollout) == (5, 5, {}, {})


def test_what_the_runner_said_stands_in_the_rollout(journal):
    journal.turn("a", ROOT, [30, 2])
    journal.finish(reward=0.5)
    rollout = assemble(journal.forest())
    assert (rollout.status, rollout.reward, rollout.rewards, rollout.stop_reason) == (
        "completed",
        0.5,
        {"tests": 1.0},
        "agent_exit",
    )
    assert rollout.extra["turnstile.metadata"] == {"opened": {"seed": 3}, "finished": {"stop_reason": "agent_exit"}}


@pytest.mark.parametrize(
    ("said", "reasons"),
    [
        ('{"trainable":false}', ("runner_said",)),
        ('{"trainable":false,"mask_reasons":["evaluation"]}', ("evaluation",)),
        ('{"trainable":true,"mask_reasons":["evaluation"]}', ()),
        ('{"trainable":"of course"}', ()),
    ],
)
def test_a_runner_may_withhold_a_rollout_from_training_with_a_reason(journal, said, reasons):
    first = journal.turn("a", ROOT, [30, 2], logprobs=[-0.5, None])
    journal.turn("b", [3, 50, 20], [60, 2], first)
    journal.turn("c", [3, 51, 20], [70, 2], first, history=edited())
    journal.finish(metadata=said)
    rollout = assemble(journal.forest())
    assert (rollout.trainable, rollout.mask_reasons) == (not reasons, reasons)
    trainable, withheld = (0, {"rollout_untrainable": 5}) if reasons else (5, {})
    assert counts(rollout) == (6, trainable, {"logprob_missing": 1} | withheld, {})
    assert not [each for each in validate(rollout) if each.code.startswith("E")]


def test_metrics_are_what_the_runner_measured(journal):
    journal.finish(metadata='{"metrics":{"seconds":7.5,"tests":null}}')
    assert assemble(journal.forest()).metrics == {"seconds": 7.5, "tests": None}


def test_an_open_rollout_is_marked_running_and_names_its_running_calls(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.start("b", [3, 50, 20], first)
    rollout = assemble(journal.forest())
    assert (rollout.status, rollout.finished_at, rollout.reward) == ("running", None, None)
    assert ([call.call_id for call in rollout.calls], rollout.extra["turnstile.running"]) == (["a"], ["b"])


def test_a_call_that_never_ended_in_a_closed_rollout_was_interrupted(journal):
    journal.start("a", ROOT)
    journal.finish()
    (call,) = assemble(journal.forest()).calls
    assert (call.kind, call.kind_reason, call.finish, call.finished_at) == ("discarded", "interrupted", "error", None)


def test_a_fork_shares_its_beginning_as_context_and_says_where_it_left(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.turn("b", [3, 50, 20], [60, 2], first)
    journal.turn("c", [3, 51, 20], [70, 2], first, history=edited())
    rollout = assemble(journal.forest())
    shared = [(part.kind, part.call, part.mask_reason) for part in rollout.sequences[1].segments if part.call == 0]
    assert shared == [("sampled", 0, "owned_by_other_sequence")]
    fork = rollout.calls[2]
    assert (fork.parent, fork.history, fork.history_reason, fork.fork_at) == (0, "forked", "message_edited:2", 7)
    assert extra(rollout, "c") == {
        "change": {"message_index": 2, "char_offset": 3, "was": "4", "now": "error"},
        "nearest_call": "b",
    }
    assert extra(rollout, "b")["left_behind_by"] == "c"
    assert counts(rollout) == (6, 6, {}, {})


def test_case_c4_an_omitted_answer_and_what_came_instead_are_both_trained_once(journal):
    journal.turn("a", ROOT, [30, 2])
    second = journal.turn(
        "b", [1, 10, 11, 12, 20], [40, 2], history=Forked(ForkReason.ASSISTANT_TURN_OMITTED, message_index=1)
    )
    journal.turn("c", [3, 50, 20], [60, 2], second)
    journal.finish()
    rollout = assemble(journal.forest())
    assert [sequence.loss_mask_T().tolist() for sequence in rollout.sequences] == [
        [0, 0, 0, 0, 1, 1],
        [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1],
    ]
    assert (rollout.calls[1].history_reason, rollout.calls[1].fork_at) == ("assistant_turn_omitted:1", 3)
    assert extra(rollout, "a")["left_behind_by"] == "b"


def test_case_l2_a_shared_turn_counts_once_whatever_number_of_sequences_holds_it(journal):
    first = journal.turn("a1", ROOT, [30, 2])
    journal.turn("a2", [3, 50, 20], [60, 2], first)
    third = journal.turn("a3", [3, 51, 20], [70, 2], first, history=edited())
    journal.turn("a4", [3, 52, 20], [80, 2], third)
    rollout = assemble(journal.forest())
    trained = Counter(
        (part.call, at - part.start)
        for sequence in rollout.sequences
        for part in sequence.segments
        if part.trainable
        for at in range(part.start, part.end)
    )
    assert set(trained.values()) == {1}
    assert len(trained) == rollout.token_counts.sampled == 8


def test_a_substituted_stop_is_trained_in_the_older_sequence_alone(journal):
    first = journal.turn("a", ROOT, [30, 31, 2])
    journal.turn("b", [9, 50, 20], [60, 2], first, cut=1, history=Forked(ForkReason.STOP_MISMATCH))
    rollout = assemble(journal.forest())
    older, newer = told(rollout)
    assert older[0] == [*ROOT, 30, 31, 2]
    assert older[1][-1] == ("sampled", 4, 7, 0, "train")
    assert newer[0] == [*ROOT, 30, 31, 9, 50, 20, 60, 2]
    assert newer[1][2:4] == [
        ("sampled", 4, 6, 0, "owned_by_other_sequence"),
        ("observation", 6, 7, None, None),
    ]
    assert rollout.sequences[1].logprobs.tolist() == [-0.5, -1.5, -0.5, -1.5]
    assert (rollout.calls[1].parent, rollout.calls[1].fork_at) == (None, 6)
    assert counts(rollout) == (5, 5, {}, {})


def test_a_completion_belongs_to_the_sequence_that_holds_all_of_it_even_if_a_shorter_cut_comes_first(journal):
    first = journal.turn("a", ROOT, [30, 31, 2])
    journal.turn("b", [9, 50, 20], [60, 2], first, cut=1, history=Forked(ForkReason.STOP_MISMATCH))
    journal.turn("c", [3, 50, 20], [70, 2], first)
    rollout = assemble(journal.forest())
    assert [call.sequence for call in rollout.calls] == [1, 0, 1]
    assert counts(rollout) == (7, 7, {}, {})


def test_case_a5_a_sampled_image_placeholder_is_kept_and_not_trainable(journal):
    journal.turn("a", [1, 10, 11, 20], [30, 99, 2], placeholders_S=(1,))
    journal.finish()
    rollout = assemble(journal.forest())
    assert [(each.start, each.end, each.mask_reason) for each in rollout.sequences[0].segments][-3:] == [
        (4, 5, None),
        (5, 6, "sampled_placeholder"),
        (6, 7, None),
    ]
    assert rollout.sequences[0].media == ()
    assert counts(rollout) == (3, 2, {"sampled_placeholder": 1}, {})


def test_case_d5_an_unknown_log_probability_masks_its_own_token_and_no_other(journal):
    journal.turn("a", ROOT, [30, 31, 32, 2], logprobs=[-1.0, None, None, -2.0])
    rollout = assemble(journal.forest())
    assert told(rollout)[0][1][2:] == [
        ("sampled", 4, 5, 0, "train"),
        ("sampled", 5, 7, 0, "logprob_missing"),
        ("sampled", 7, 8, 0, "train"),
    ]
    assert rollout.sequences[0].logprobs.tolist() == [-1.0, None, None, -2.0]
    assert rollout.calls[0].complete
    assert counts(rollout) == (4, 2, {"logprob_missing": 2}, {})


@pytest.mark.parametrize(
    ("logprobs_S", "reason"),
    [(None, "logprobs_missing"), (LogprobRun(), "count_mismatch"), (LogprobRun.of([None, None]), "logprobs_missing")],
)
def test_case_d5_a_turn_without_log_probabilities_is_masked_whole_and_counted(journal, logprobs_S, reason):
    first = journal.turn("a", ROOT, [30, 2])
    journal.turn("b", [3, 50, 20], [60, 2], first, logprobs_S=logprobs_S)
    rollout = assemble(journal.forest())
    assert [(part.complete, part.incomplete_reasons) for part in rollout.sequences] == [
        (True, ()),
        (False, (reason,)),
    ]
    assert [call.sequence for call in rollout.calls] == [0, 1]
    assert counts(rollout) == (4, 2, {"incomplete_call": 2}, {})


@pytest.mark.parametrize("ending", [form.value for form in FileForm])
def test_case_d5_arrays_of_unequal_length_are_masked_and_counted_and_the_file_has_the_same_totals(
    journal, tmp_path, ending
):
    nine = [30, 31, 32, 33, 34, 35, 36, 37, 2]
    good = journal.turn("good", ROOT, nine)
    empty = journal.turn("empty", [3, 50, 20], nine, good, logprobs_S=LogprobRun())
    journal.turn("longer", [3, 51, 20], nine, empty, logprobs_S=LogprobRun.of([-1.0] * 11))
    journal.finish()
    written = assemble(journal.forest())
    write(tmp_path / f"rollouts{ending}", [written])
    (rollout,) = read(tmp_path / f"rollouts{ending}")

    assert rollout == written
    assert counts(rollout) == (27, 9, {"incomplete_call": 18}, {})
    assert [(call.call_id, call.complete, call.incomplete_reasons) for call in rollout.calls] == [
        ("good", True, ()), ("empty", False, ("count_mismatch",)), ("longer", False, ("count_mismatch",)),
    ]  # fmt: skip
    in_file = [
        (len(each.logprobs), len(each.logprobs.unknown), sum(each.loss_mask_T()), len(each.loss_mask_T()))
        for each in rollout.sequences
    ]
    assert in_file == [(9, 0, 9, 13), (27, 18, 0, 37)]
    assert sum(trained for _, _, trained, _ in in_file) == rollout.token_counts.trainable
    assert not [each for each in validate(rollout) if each.code.startswith("E")]


def test_an_incomplete_answer_does_not_cost_the_turns_before_it(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.turn("b", [3, 50, 20], [60], first, incomplete=(IncompleteReason.UPSTREAM_TRUNCATED,))
    journal.turn("c", [3, 50, 20], [70, 2], first)
    rollout = assemble(journal.forest())
    assert [sequence.leaf_call for sequence in rollout.sequences] == [1, 2]
    assert [call.sequence for call in rollout.calls] == [1, 0, 1]
    assert counts(rollout) == (5, 4, {"incomplete_call": 1}, {})


def test_case_f1_an_answer_that_nobody_got_is_discarded_and_its_retry_is_trained(journal):
    journal.turn("a", ROOT, [30, 2])
    journal.undelivered("a")
    journal.turn("b", ROOT, [31, 32, 2])
    rollout = assemble(journal.forest())
    assert [(call.kind, call.kind_reason, call.sequence) for call in rollout.calls] == [
        ("discarded", "client_gone", None),
        ("agent", None, 0),
    ]
    assert counts(rollout) == (5, 3, {}, {"client_gone": 2})
    assert extra(rollout, "a")["undelivered"]["reason"] == "client_gone"


def test_case_f1_an_answer_that_a_repeat_got_is_no_discard(journal):
    journal.turn("a", ROOT, [30, 2])
    journal.undelivered("a")
    journal.joined("a")
    rollout = assemble(journal.forest())
    assert (rollout.calls[0].kind, counts(rollout)) == ("agent", (2, 2, {}, {}))
    assert extra(rollout, "a")["repeats"][0]["how"] == "replayed"


def test_an_undelivered_answer_that_the_client_builds_on_is_no_discard(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.undelivered("a")
    journal.start("b", [3, 50, 20], first)
    journal.fail("b", FailReason.ENGINE_UNREACHABLE, [])
    assert assemble(journal.forest()).calls[0].kind == "agent"


def test_choices_that_were_not_continued_are_discarded_once_another_was(journal):
    journal.start("a", ROOT)
    refs = journal.commit("a", *(journal.choice("a", [30 + number, 2], number=number) for number in range(3)))
    journal.turn("b", [3, 50, 20], [60, 2], refs[1])
    rollout = assemble(journal.forest())
    assert [(call.call_id, call.choice_index, call.kind_reason, call.sequence) for call in rollout.calls] == [
        ("a", 0, "unselected_choice", None),
        ("a.1", 1, None, 0),
        ("a.2", 2, "unselected_choice", None),
        ("b", 0, None, 0),
    ]
    assert rollout.calls[3].parent == 1
    assert counts(rollout) == (8, 4, {}, {"unselected_choice": 4})


def test_choices_of_which_none_was_continued_are_all_kept(journal):
    journal.start("a", ROOT)
    journal.commit("a", *(journal.choice("a", [30 + number, 2], number=number) for number in range(2)))
    rollout = assemble(journal.forest())
    assert [call.sequence for call in rollout.calls] == [0, 1]
    assert counts(rollout) == (4, 4, {}, {})


def test_case_l4_a_failed_call_is_listed_and_counted_and_makes_no_sequence(journal):
    journal.start("a", ROOT)
    journal.fail("a", FailReason.ENGINE_BROKEN, [30, 31])
    journal.finish(status=RolloutStatus.FAILED, reward=None)
    rollout = assemble(journal.forest())
    (call,) = rollout.calls
    assert (call.kind, call.kind_reason, call.finish, call.complete) == ("discarded", "engine_broken", "error", False)
    assert (rollout.sequences, counts(rollout)) == ((), (2, 0, {}, {"engine_broken": 2}))
    assert (rollout.error.type, rollout.error.message) == ("engine_broken", "it broke")
    assert extra(rollout, "a")["failure"] == {"problem": "it broke", "status": 502}


def test_case_l4_a_rollout_without_calls_is_a_rollout_without_sequences(journal):
    journal.finish()
    rollout = assemble(journal.forest())
    assert (rollout.calls, rollout.sequences, counts(rollout)) == ((), (), (0, 0, {}, {}))


def test_case_d4_an_answer_without_ids_has_no_trainable_token(journal):
    journal.turn("a", ROOT, [])
    rollout = assemble(journal.forest())
    assert told(rollout) == [(ROOT, [("prompt", 0, 2, None, None), ("scaffold", 2, 4, None, None)])]
    assert (rollout.sequences[0].prompt_length, rollout.calls[0].sequence) == (4, 0)


def test_what_was_noticed_about_a_call_is_in_the_export(journal):
    noted = (Note(NoteCode.LOGPROBS_ALL_ZERO, "n=24"),)
    journal.turn("a", ROOT, [30, 2], notes=noted)
    rollout = assemble(journal.forest())
    assert extra(rollout, "a")["notes"] == [{"code": "logprob_suspect:all_zero", "detail": "n=24"}]


@pytest.mark.parametrize(
    ("policy", "trained", "masked", "said"),
    [(SuspectLogprobs.MARK, 4, {}, None), (SuspectLogprobs.MASK, 2, {"logprob_suspect": 2}, "mask")],
)
def test_case_d3_a_suspect_call_is_marked_or_masked_as_the_rollouts_policy_says(journal, policy, trained, masked, said):
    journal.records[0] = msgspec.structs.replace(journal.records[0], suspect_logprobs=policy)
    noted = (Note(NoteCode.LOGPROBS_ALL_ZERO, "n=24"),)
    first = journal.turn("a", ROOT, [30, 2], logprobs=[0.0, 0.0], notes=noted)
    journal.turn("b", [3, 50, 20], [60, 2], first)
    journal.finish()
    rollout = assemble(journal.forest())
    assert counts(rollout) == (4, trained, masked, {})
    assert [call.complete for call in rollout.calls] == [True, True]
    assert rollout.sequences[0].logprobs.tolist() == [0.0, 0.0, -0.5, -1.5]
    assert rollout.extra.get("turnstile.suspect_logprobs") == said
    assert not [each for each in validate(rollout) if each.code.startswith("E")]


def test_a_suspect_call_that_an_earlier_sequence_owns_is_masked_for_that_alone(journal):
    journal.records[0] = msgspec.structs.replace(journal.records[0], suspect_logprobs=SuspectLogprobs.MASK)
    noted = (Note(NoteCode.LOGPROBS_ALL_ZERO, "n=24"),)
    first = journal.turn("a", ROOT, [30, 2], notes=noted)
    journal.turn("b", [3, 50, 20], [60, 2], first)
    journal.turn("c", [3, 51, 20], [70, 2], first, history=edited())
    rollout = assemble(journal.forest())
    masks = [[part.mask_reason for part, _ in each.sampled_segments()] for each in rollout.sequences]
    assert masks == [["logprob_suspect", None], ["owned_by_other_sequence", None]]
    assert counts(rollout) == (6, 4, {"logprob_suspect": 2}, {})


def test_each_message_is_written_once_in_chat_form_and_sequences_point_at_it(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.turn("b", [3, 50, 20], [60, 2], first)
    journal.turn("c", [3, 51, 20], [70, 2], first, history=edited())
    rollout = assemble(journal.forest())
    assert [sequence.messages for sequence in rollout.sequences] == [(0, 1, 2, 3), (0, 1, 4, 5)]
    assert rollout.messages[0] == {"role": "user", "content": f"say {ROOT}"}
    assert rollout.messages[1] == {"role": "assistant", "content": "a [30, 2]"}
    assert rollout.tools == (({"type": "function", "function": {"name": "add"}},),)
    assert rollout.heads[0].tools == 0


def test_records_without_an_opening_are_no_rollout():
    with pytest.raises(StoreError, match="do not begin with its opening"):
        assemble(Forest())


@pytest.mark.parametrize(
    ("logprobs", "trainable", "masked"),
    [([-0.5, -0.25, -1.0], 2, {}), ([-0.5, None, -1.0], 1, {"logprob_missing": 1}), (None, 0, {"incomplete_call": 4})],
    ids=["known", "one not finite", "unknown"],
)
def test_case_f6_the_beginning_that_a_client_went_on_from_is_trained_once_and_the_rest_discarded(
    journal, logprobs, trainable, masked
):
    journal.start("a", ROOT)
    said = Message(Role.ASSISTANT, (Text("Look."),))
    known = PartialChoice(
        logprobs_S=None if logprobs is None else LogprobRun.of(logprobs),
        logprobs_mode=LogprobsMode.RAW,
        logprobs_temperature=1.0,
        items=(FinishedItem(said, 2),),
    )
    partial_S = IdRun.of([30, 31, 32])
    gone = FailReason.CLIENT_GONE
    journal.records += [
        CallFailed("ro", "a", journal.now(), gone, "gone", partial_S=partial_S, partials=(known,)),
        AnswerResumed("ro", "a", 0, 2, journal.now()),
    ]
    ref = NodeRef("a")
    journal.runs[ref] = journal.runs[NodeRef("a", -1)] + partial_S.slice(0, 2)
    journal.turn("b", [3, 50, 20], [60, 2], ref)

    rollout = assemble(journal.forest())
    assert [str(found) for found in validate(rollout) if found.code.startswith("E")] == []
    counted = rollout.token_counts
    whole = logprobs is not None
    assert (counted.sampled, counted.trainable) == (5, trainable + 2 * whole)
    assert (counted.masked, counted.discarded) == (masked, {"aborted_tail": 1})
    assert [(call.kind, call.finish, call.complete, call.usage.completion_tokens) for call in rollout.calls] == [
        ("agent", "abort", whole, 2),
        ("agent", "stop", True, 2),
    ]
