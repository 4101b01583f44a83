"""What an agent is told of failures behind Turnstile."""

from __future__ import annotations

import pytest

from turnstile.errors import CallerError, EchoMismatch, EngineError, StoreError, TurnstileError
from turnstile.server.sealing import in_full, sealed

PLACE = "http://10.0.0.7:8000 /srv/runs/journal.db"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (EngineError(PLACE, PLACE, code="engine_unreachable", status=503), "cannot be reached"),
        (EngineError(PLACE, PLACE, code="engine_refused", status=500), "refused the request"),
        (EngineError(PLACE, PLACE, code="engine_key_refused"), "refused Turnstile's own key, not that of this request"),
        (EngineError(PLACE, PLACE, code="engine_broken"), "cannot be used"),
        (EngineError(PLACE, PLACE, code="engine_aborted"), "gave the call up"),
        (EngineError(PLACE, PLACE, code="policy_hold_expired", status=503), "the deadline passed"),
        (EngineError(PLACE, PLACE, code="something_new"), "The engine failed"),
        (EchoMismatch(PLACE, PLACE), "other ids"),
        (StoreError(PLACE, PLACE, code="blob_missing", param="messages"), "cannot keep or read records"),
    ],
)
def test_of_what_stands_behind_an_agent_is_told_no_place_and_the_same_code(error: TurnstileError, told: str) -> None:
    known = sealed(error)
    assert told in str(known)
    assert not any(part in str(known) for part in PLACE.split())
    assert (type(known), known.code, known.status, known.param) == (
        type(error),
        error.code,
        error.status,
        error.param,
    )


@pytest.mark.parametrize(
    "error",
    [
        CallerError("`messages` is empty", "Say something", param="messages"),
        EngineError("vLLM refused the request with status 400: bad top_k", "-", code="engine_refused", status=400),
        TurnstileError("Turnstile failed inside: KeyError", "Please report it with the log"),
    ],
)
def test_what_is_wrong_with_its_own_request_an_agent_is_told_in_full(error: TurnstileError) -> None:
    assert sealed(error) is error


def test_whoever_may_know_everything_is_told_everything() -> None:
    error = StoreError(PLACE, PLACE)
    assert in_full(error) is error
