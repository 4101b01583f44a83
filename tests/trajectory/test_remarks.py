from __future__ import annotations

import msgspec

from turnstile.generation import Cut, Note, Rerendered, Retention
from turnstile.journal import CallFailed, CallRejected, EngineCall, PolicyRange
from turnstile.reasons import FailReason, NoteCode, RerenderReason
from turnstile.tokens import IdRun
from turnstile.trajectory.assemble import assemble

ROOT = [1, 10, 11, 20]


def extra(journal):
    return assemble(journal.forest()).extra


def test_a_plain_call_has_nothing_to_say_but_how_it_was_bridged(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.turn("b", [3, 50, 20], [60, 2], first)
    assert extra(journal)["turnstile.calls"] == {"b": {"bridge": "sentinel"}}


def test_notes_of_the_prompt_and_of_the_answer_stand_together(journal):
    journal.start("a", ROOT, notes=(Note(NoteCode.MATCH_AMBIGUOUS, "2 nodes"),))
    journal.commit("a", journal.choice("a", [30], notes=(Note(NoteCode.CUT_IN_CALL),), cut=Cut.CALL, stop_string="x"))
    assert extra(journal)["turnstile.calls"]["a"] == {
        "notes": [{"code": "match_ambiguous", "detail": "2 nodes"}, {"code": "cut_in_call"}],
        "cut": "call",
        "stop_string": "x",
    }


def test_a_rollout_says_under_which_retention_policy_it_was_sampled(journal):
    assert extra(journal)["turnstile.retention"] == "retain"
    journal.records[0] = msgspec.structs.replace(journal.records[0], retention=Retention.TOOL_CYCLE)
    assert extra(journal)["turnstile.retention"] == "tool_cycle"


def test_a_rerender_says_why(journal):
    journal.turn("a", ROOT, [30, 2])
    journal.turn("b", ROOT, [31, 2], history=Rerendered(RerenderReason.TEMPLATE_ERROR, "no user message"))
    assert extra(journal)["turnstile.calls"]["b"] == {"rerender": "no user message", "nearest_call": "a"}


def test_requests_that_were_never_planned_and_calls_after_the_end_are_listed(journal):
    journal.records.append(CallFailed("ro", "", journal.now(), FailReason.REFUSED, "no messages", status=400))
    journal.finish()
    journal.records.append(CallRejected("ro", journal.now(), "closed"))
    found = extra(journal)
    assert found["turnstile.refused"] == [
        {"at": "2026-12-01T00:00:01.000000Z", "reason": "refused", "problem": "no messages", "status": 400}
    ]
    assert found["turnstile.rejected"] == [{"at": "2026-12-01T00:00:03.000000Z", "reason": "closed"}]


def test_who_called_a_sub_agent_is_told(journal):
    journal.start("a", ROOT, agent_name="ses_2", parent_agent="ses_1")
    journal.commit("a", journal.choice("a", [30, 2]))
    assert extra(journal)["turnstile.calls"] == {"a": {"parent_agent": "ses_1"}}


def test_a_call_says_which_engine_ran_it_in_which_requests_and_what_weights_without_a_version_are_called(journal):
    ranges = (PolicyRange(0, 1, 6, 6, "6"), PolicyRange(1, 3, None, None, "v9"))
    calls = (EngineCall(1, "e1", "abort"), EngineCall(0, "e2", "abort", IdRun.of([40])), EngineCall(2, "e3", "stop"))
    journal.turn("a", ROOT, [30, 31, 2], policy_ranges=ranges, engine_calls=calls)
    journal.records[1] = msgspec.structs.replace(journal.records[1], engine_name="10.0.0.1:8000")
    facts = extra(journal)["turnstile.calls"]["a"]
    assert facts["engine"] == "10.0.0.1:8000"
    assert facts["policy_labels"] == [{"start": 1, "end": 3, "label": "v9"}]
    assert facts["engine_calls"] == [
        {"ids": 1, "engine_request_id": "e1", "engine_finish_reason": "abort"},
        {"engine_request_id": "e2", "engine_finish_reason": "abort", "discarded_ids": [40]},
        {"ids": 2, "engine_request_id": "e3", "engine_finish_reason": "stop"},
    ]
