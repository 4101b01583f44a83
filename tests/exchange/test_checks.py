"""What must hold of every answer before it becomes a turn."""

from __future__ import annotations

import msgspec
import pytest

from turnstile.conversation import Usage
from turnstile.errors import EchoMismatch, EngineError
from turnstile.exchange.checks import SUSPICIOUS_ZEROS, verify
from turnstile.generation import Draw, Finish, Generation, Head, LogprobsMode, Prompt, Root
from turnstile.reasons import IncompleteReason, NoteCode, RootReason
from turnstile.tokens import IdRun, LogprobRun

STOP = 99
DRAW = Draw(stop_ids=frozenset({STOP}))
PROMPT = Prompt(
    Head("f", "m", "t", 100, "c", "{}", ()), None, IdRun.of([1, 2]), IdRun.of([3]), (), Root(RootReason.FIRST_CALL)
)


class Hundred:
    """A vocabulary of a hundred ids."""

    size = 100

    def token_bytes(self, token_id: int) -> bytes:
        return b"%d" % token_id

    def is_special(self, token_id: int) -> bool:
        return token_id == STOP


def generation(ids: list[int], **changes: object) -> Generation:
    plain = Generation(
        ids_S=IdRun.of(ids),
        logprobs_S=LogprobRun.of([-0.5] * len(ids)),
        finish=Finish.STOP,
        engine_finish_reason="stop",
        usage=Usage(3, len(ids)),
        logprobs_mode=LogprobsMode.PROCESSED,
        logprobs_temperature=1.0,
    )
    return msgspec.structs.replace(plain, **changes)


def test_an_answer_without_fault_is_complete_and_stopped_by_its_last_id() -> None:
    verdict = verify(PROMPT, DRAW, generation([5, STOP]), Hundred())
    assert (verdict.finish, verdict.incomplete, verdict.notes) == (Finish.STOP, (), ())


def test_case_a1_fewer_ids_than_the_engine_counted_make_the_turn_incomplete() -> None:
    verdict = verify(PROMPT, DRAW, generation([4, 5, 6, 7, 8, STOP], usage=Usage(3, 31)), Hundred())
    assert verdict.incomplete == (IncompleteReason.IDS_INCOMPLETE,)


def test_case_a3_other_prompt_ids_than_were_sent_are_no_turn_and_the_index_is_named() -> None:
    with pytest.raises(EchoMismatch, match=r"than the 3 it was given \(echo_mismatch at=1\)"):
        verify(PROMPT, DRAW, generation([5, STOP], prompt_echo_T=IdRun.of([1, 7, 3])), Hundred())


def test_another_prompt_count_than_was_sent_is_no_turn() -> None:
    with pytest.raises(EchoMismatch, match="counted 4 prompt ids, but was given 3"):
        verify(PROMPT, DRAW, generation([5, STOP], usage=Usage(4, 2)), Hundred())


@pytest.mark.parametrize("token_id", [100, -1])
def test_an_id_outside_the_vocabulary_is_no_turn(token_id: int) -> None:
    with pytest.raises(EngineError, match=f"sampled id {token_id} at index 0"):
        verify(PROMPT, DRAW, generation([token_id, STOP]), Hundred())


def test_case_d5_log_probabilities_of_another_length_make_the_turn_incomplete() -> None:
    verdict = verify(PROMPT, DRAW, generation([5, STOP], logprobs_S=LogprobRun.of([-0.5])), Hundred())
    assert verdict.incomplete == (IncompleteReason.COUNT_MISMATCH,)


@pytest.mark.parametrize("logprobs", [None, LogprobRun.of([None, None])])
def test_no_log_probability_at_all_makes_the_turn_incomplete(logprobs: LogprobRun | None) -> None:
    verdict = verify(PROMPT, DRAW, generation([5, STOP], logprobs_S=logprobs), Hundred())
    assert verdict.incomplete == (IncompleteReason.LOGPROBS_MISSING,)


def test_one_missing_log_probability_leaves_the_turn_complete() -> None:
    verdict = verify(PROMPT, DRAW, generation([5, STOP], logprobs_S=LogprobRun.of([None, -0.1])), Hundred())
    assert verdict.incomplete == ()


def test_case_d3_all_zero_log_probabilities_are_suspected() -> None:
    ids = [5] * (SUSPICIOUS_ZEROS - 1) + [STOP]
    zeros = LogprobRun.of([0.0] * len(ids))
    assert [note.code for note in verify(PROMPT, DRAW, generation(ids, logprobs_S=zeros), Hundred()).notes] == [
        NoteCode.LOGPROBS_ALL_ZERO
    ]
    greedy = msgspec.structs.replace(DRAW, temperature=0.0)
    assert verify(PROMPT, greedy, generation(ids, logprobs_S=zeros), Hundred()).notes == ()
    few = generation([5, 6, STOP], logprobs_S=LogprobRun.of([0.0] * 3))
    assert verify(PROMPT, DRAW, few, Hundred()).notes == ()


def test_the_finish_comes_from_the_ids_and_the_engines_label_stands_beside_it() -> None:
    verdict = verify(PROMPT, DRAW, generation([5, STOP], finish=Finish.LENGTH), Hundred())
    assert verdict.finish is Finish.STOP
    assert [(note.code, note.detail) for note in verdict.notes] == [
        (NoteCode.FINISH_CONFLICT, "engine=length ids=stop")
    ]


def test_a_stop_without_a_stop_token_or_string_is_not_believed() -> None:
    verdict = verify(PROMPT, DRAW, generation([5, 6]), Hundred())
    assert verdict.incomplete == (IncompleteReason.STOP_UNKNOWN,)


def test_a_stop_string_is_a_stop() -> None:
    verdict = verify(PROMPT, DRAW, generation([5, 6], stop_string="x"), Hundred())
    assert (verdict.finish, verdict.incomplete) == (Finish.STOP, ())


def test_case_d4_an_answer_cut_by_length_has_no_close_of_its_own() -> None:
    verdict = verify(PROMPT, DRAW, generation([5, 6], finish=Finish.LENGTH), Hundred())
    assert (verdict.finish, verdict.incomplete) == (Finish.LENGTH, ())


def test_an_aborted_answer_is_incomplete() -> None:
    verdict = verify(PROMPT, DRAW, generation([5, 6], finish=Finish.ABORT), Hundred())
    assert (verdict.finish, verdict.incomplete) == (Finish.ABORT, (IncompleteReason.UPSTREAM_TRUNCATED,))


def test_case_a4_a_stop_token_in_the_middle_is_kept_and_noted() -> None:
    verdict = verify(PROMPT, DRAW, generation([5, STOP, 6, STOP]), Hundred())
    assert [(note.code, note.detail) for note in verdict.notes] == [(NoteCode.SAMPLED_CONTROL_TOKEN, "stop id at 1")]


def test_case_a5_a_sampled_image_placeholder_is_kept_and_named_by_its_place() -> None:
    verdict = verify(PROMPT, DRAW, generation([5, 7, STOP]), Hundred(), placeholder_id=7)
    assert verdict.placeholders_S == (1,)
    assert [(note.code, note.detail) for note in verdict.notes] == [(NoteCode.SAMPLED_PLACEHOLDER, "at=1")]
    assert verify(PROMPT, DRAW, generation([5, 7, STOP]), Hundred()).placeholders_S == ()
