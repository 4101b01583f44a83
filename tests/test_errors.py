"""What an error tells."""

from __future__ import annotations

import pytest

from turnstile.errors import CallerError, EchoMismatch, EngineError, StoreError, TurnstileError


def test_an_error_says_the_problem_and_the_remedy_a_sentence_each() -> None:
    error = CallerError("`n` is 0", "Send a number from 1 to 8", param="n")
    assert str(error) == "`n` is 0. Send a number from 1 to 8."
    assert (error.problem, error.remedy, error.param) == ("`n` is 0", "Send a number from 1 to 8", "n")


def test_words_of_other_programs_that_end_in_a_full_stop_get_no_second_one() -> None:
    assert str(CallerError("tokenizers says: no such file.", "Give another")) == (
        "tokenizers says: no such file. Give another."
    )
    assert str(CallerError("Is this the file?", "")) == "Is this the file?"


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        (TurnstileError, 500, "internal_error"),
        (CallerError, 400, "invalid_request"),
        (EngineError, 502, "engine_error"),
        (EchoMismatch, 502, "echo_mismatch"),
        (StoreError, 503, "store_error"),
    ],
)
def test_each_kind_has_a_status_and_a_word_of_its_own(kind: type[TurnstileError], status: int, code: str) -> None:
    error = kind("it broke", "mend it")
    assert (error.status, error.code) == (status, code)


def test_where_it_is_raised_may_say_a_finer_word_and_status() -> None:
    error = CallerError("there is none", "make one", code="rollout_not_found", status=404)
    assert (error.status, error.code) == (404, "rollout_not_found")
