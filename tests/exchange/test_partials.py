"""What is kept of an answer that breaks off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from turnstile.conversation import Message, ReplyDelta, Role, Text, ToolCall, ToolCallDelta, ToolSpec
from turnstile.exchange.partials import Partial, Reading
from turnstile.exchange.policy_log import Announcement, PolicyLog
from turnstile.generation import Delta, FinishedItem, LogprobsMode, Numbers
from turnstile.journal import PartialChoice
from turnstile.parsing.formats import by_name
from turnstile.parsing.parser import ParserSetup
from turnstile.reasons import FailReason
from turnstile.templates.tokenizer import Tokenizer
from turnstile.tokens import IdRun, LogprobRun

LS = ToolSpec("ls", '{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}')
CALL = '<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>'
CALLED = ToolCallDelta(0, call_id="k", name="ls")


@pytest.fixture
def tokenizer(tools_folder: Path, tokenizers_of: Callable[[Path], Tokenizer]) -> Tokenizer:
    return tokenizers_of(tools_folder)


@pytest.fixture
def reading(tokenizer: Tokenizer) -> Reading:
    setup = ParserSetup(tokenizer, by_name("hermes"), lambda: "", tools=(LS,))
    log = PolicyLog()
    log.take(log.after(Announcement(6)))
    reading = Reading(setup, placeholder_id=None, epoch=log.epoch())
    log.take(log.after(Announcement(7)))
    return reading


def numbers(*values: float | None) -> Numbers:
    return Numbers(LogprobRun.of(values), LogprobsMode.PROCESSED, 0.5)


def test_ids_keep_their_numbers_and_what_those_mean(reading: Reading) -> None:
    partial = Partial(msgspec.structs.replace(reading, placeholder_id=3))
    partial.gain(Delta(IdRun.of([1, 2]), numbers=numbers(-1.0, None)))
    partial.gain(Delta(IdRun.of([3]), numbers=numbers(-2.0)))
    assert partial.ids_S == IdRun.of([1, 2, 3])
    assert partial.choice(FailReason.CLIENT_GONE) == PartialChoice(
        LogprobRun.of([-1.0, None, -2.0]), LogprobsMode.PROCESSED, 0.5, (), 6, 7, (2,)
    )


@pytest.mark.parametrize("second", [None, numbers(-1.0, -2.0)], ids=["some without", "too many"])
def test_numbers_that_do_not_fit_the_ids_are_none(reading: Reading, second: Numbers | None) -> None:
    partial = Partial(reading)
    partial.gain(Delta(IdRun.of([1]), numbers=numbers(-1.0)))
    partial.gain(Delta(IdRun.of([2]), numbers=second))
    assert partial.choice(FailReason.CLIENT_GONE).logprobs_S is None


def test_finished_items_keep_the_ids_that_their_calls_were_handed_out_with(
    reading: Reading, tokenizer: Tokenizer
) -> None:
    partial = Partial(reading)
    ids_S = tokenizer.encode(f"Look.\n{CALL}\n<tool_call>")
    partial.gain(Delta(ids_S))
    partial.tell((ReplyDelta(content="Look.", calls=(CALLED, ToolCallDelta(0, arguments="{}"))),))
    end_S = len(tokenizer.encode(f"Look.\n{CALL}"))
    look, call = partial.choice(FailReason.ENGINE_UNREACHABLE).items
    assert look == FinishedItem(Message(Role.ASSISTANT, (Text("Look."),)), len(tokenizer.encode("Look.")))
    assert call == FinishedItem(Message(Role.ASSISTANT, calls=(ToolCall("k", "ls", "{}"),)), end_S)


@pytest.mark.parametrize("reason", [FailReason.ECHO_MISMATCH, FailReason.VERIFICATION_FAILED, FailReason.INTERNAL])
def test_nothing_is_gone_on_from_where_the_ids_are_in_doubt(
    reading: Reading, tokenizer: Tokenizer, reason: FailReason
) -> None:
    partial = Partial(reading)
    partial.gain(Delta(tokenizer.encode(f"{CALL}<tool_call>")))
    partial.tell((ReplyDelta(calls=(CALLED,)),))
    assert partial.choice(reason).items == ()


def test_nothing_is_gone_on_from_where_an_id_is_no_token(reading: Reading, tokenizer: Tokenizer) -> None:
    partial = Partial(reading)
    partial.gain(Delta(tokenizer.encode(CALL) + IdRun.of([tokenizer.size])))
    partial.tell((ReplyDelta(calls=(CALLED,)),))
    assert partial.choice(FailReason.CLIENT_GONE).items == ()
