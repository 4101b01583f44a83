"""What is noted of one request of an agent while it is answered."""

from __future__ import annotations

import pytest

from turnstile.conversation import Answer, Message, Reply, ReplyFinish, Role, Usage
from turnstile.errors import EngineError
from turnstile.exchange.inflight import Flight
from turnstile.exchange.repeats import Repeat
from turnstile.protocols.chat import CHAT
from turnstile.server.call_report import CallReport
from turnstile.server.visit import Visit

ANSWER = Answer((Reply(Message(Role.ASSISTANT), ReplyFinish.STOP),), Usage(7, 2))


@pytest.fixture
def visit() -> Visit:
    return Visit(CHAT, "/v1/chat/completions", "r1")


def told_of(visit: Visit) -> CallReport:
    told: list[CallReport] = []
    visit.leave(told.append)
    (report,) = told
    return report


def test_a_request_that_was_refused_is_told_with_its_error_and_without_a_call(visit: Visit) -> None:
    visit.status, visit.refused, visit.is_over = 401, "wrong_key", True
    report = told_of(visit)
    assert (report.rollout_id, report.attempt, report.call_id) == ("r1", 0, "")
    assert (report.dialect, report.path) == ("openai.chat", "/v1/chat/completions")
    assert (report.status, report.outcome, report.client_gone, report.repeat) == (401, "wrong_key", False, "fresh")


def test_a_request_whose_client_left_first_is_told_of_when_its_call_has_ended(visit: Visit) -> None:
    told: list[CallReport] = []
    flight = Flight("d", "", "c3")
    visit.boards(flight, Repeat.FRESH)
    visit.leave(told.append)
    assert told == []
    flight.land(ANSWER)
    (report,) = told
    assert (report.call_id, report.outcome, report.client_gone) == ("c3", "client_gone", True)


@pytest.mark.parametrize(
    ("outcome", "word"), [(ANSWER, "answered"), (EngineError("x", "y", code="engine_broken"), "engine_broken")]
)
def test_an_answer_that_arrived_is_told_with_its_end(visit: Visit, outcome: Answer | EngineError, word: str) -> None:
    flight = Flight("d", "", "c0")
    visit.boards(flight, Repeat.FRESH)
    visit.is_over = True
    flight.land(outcome)
    report = told_of(visit)
    assert (report.outcome, report.client_gone) == (word, False)
    assert report.took.added_s is not None


def test_a_request_that_waited_for_anothers_call_adds_no_time_of_its_own(visit: Visit) -> None:
    flight = Flight("d", "", "c0")
    flight.land(ANSWER)
    visit.boards(flight, Repeat.REPLAYED)
    visit.is_over = True
    report = told_of(visit)
    assert (report.repeat, report.outcome, report.took.added_s) == ("replayed", "answered", None)


def test_the_time_in_which_a_body_came_is_its_clients(visit: Visit) -> None:
    before = visit.report()
    visit.was_read()
    flight = Flight("d", "", "c0")
    began_ns = flight.times.began_ns
    visit.boards(flight, Repeat.FRESH)
    assert before.status == 0
    assert flight.times.began_ns <= began_ns


def test_a_fault_of_ours_is_told_as_one(visit: Visit) -> None:
    visit.broke()
    report = told_of(visit)
    assert (report.status, report.outcome, report.client_gone) == (500, "internal_error", False)
