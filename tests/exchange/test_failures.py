"""What the journal keeps of a failed call, and what its client is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from turnstile.errors import CallerError, EchoMismatch, EngineError, TurnstileError
from turnstile.exchange.failures import Progress, failure
from turnstile.exchange.partials import Reading
from turnstile.exchange.policy_log import PolicyLog
from turnstile.generation import Delta
from turnstile.journal import CallFailed, PartialChoice
from turnstile.parsing.formats import by_name
from turnstile.parsing.parser import ParserSetup
from turnstile.reasons import FailReason
from turnstile.templates.tokenizer import Tokenizer
from turnstile.tokens import IdRun

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def reading(tools_folder: Path, tokenizers_of: Callable[[Path], Tokenizer]) -> Reading:
    """Nothing that was sampled here is anything but text."""
    setup = ParserSetup(tokenizers_of(tools_folder), by_name("none"), lambda: "")
    return Reading(setup, placeholder_id=None, epoch=PolicyLog().epoch())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CallerError("bad", "x"), FailReason.REFUSED),
        (CallerError("bad", "x", code="render_failed"), FailReason.RENDER_FAILED),
        (CallerError("long", "x", code="context_length_exceeded"), FailReason.CONTEXT_OVERFLOW),
        (EngineError("down", "x", code="engine_unreachable"), FailReason.ENGINE_UNREACHABLE),
        (EngineError("no", "x", code="engine_refused"), FailReason.ENGINE_REFUSED),
        (EngineError("what", "x", code="engine_broken"), FailReason.ENGINE_BROKEN),
        (EchoMismatch("other", "x"), FailReason.ECHO_MISMATCH),
    ],
)
def test_each_error_has_its_reason_and_the_client_is_told_the_error(
    error: TurnstileError, reason: FailReason, reading: Reading
) -> None:
    progress = Progress("r", "openai.chat")
    progress.call_id = "c1"
    for choice in (0, 2):
        progress.begin(choice, reading)
    for choice, token_id in ((0, 1), (2, 5), (0, 2)):
        progress.sampled(choice, Delta(IdRun.of([token_id])))
    record, told = failure(error, progress, AT)
    assert record == CallFailed(
        "r",
        "c1",
        AT,
        reason,
        error.problem,
        "openai.chat",
        error.status,
        IdRun.of([1, 2]),
        (IdRun(), IdRun.of([5])),
        (PartialChoice(), PartialChoice(), PartialChoice()),
    )
    assert record.partial_count == 3
    assert told is error


def test_a_cancelled_call_was_given_up_by_its_client() -> None:
    record, told = failure(asyncio.CancelledError(), Progress("r", "openai.chat"), AT)
    assert (record.reason, told.code) == (FailReason.CLIENT_GONE, "cancelled")
