"""When earlier answers get their ids back, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest

from turnstile.conversation import Call, Message, Role, Text
from turnstile.generation import Cut, Match, NodeRef, Note, Replay, Retention
from turnstile.reasons import NoteCode
from turnstile.templates.multisplice import MultiSplice
from turnstile.templates.replaying import notes_on, put_back
from turnstile.templates.served import Served
from turnstile.templates.shapes import TOOLS
from turnstile.tokens import IdRun

NOW = datetime(2026, 12, 1, tzinfo=UTC)
MESSAGES = tuple(
    Message(role, (Text(text),))
    for role, text in (
        (Role.USER, "u1"),
        (Role.ASSISTANT, "a1"),
        (Role.USER, "u2"),
        (Role.ASSISTANT, "a2"),
        (Role.USER, "u3"),
    )
)
REPLAYS = tuple(Replay(at, at + 10, NodeRef(f"c{at}"), IdRun.of([40, 41, 2]), MESSAGES[at], Cut.NONE) for at in (1, 3))
CALL = Call("test", "m", MESSAGES)


@pytest.mark.families
@pytest.mark.parametrize("retention", Retention)
def test_ids_go_back_only_where_everything_that_was_sampled_is_to_stay(
    served: Callable[[str], Served], retention: Retention
) -> None:
    found = put_back(served("qwen3"), Match(None, 0, MESSAGES, None, replays=REPLAYS), CALL, NOW, retention)
    assert isinstance(found, MultiSplice) == (retention is Retention.RETAIN)


@pytest.mark.families
def test_without_an_answer_whose_ids_are_held_there_is_nothing_to_put_back(served: Callable[[str], Served]) -> None:
    assert put_back(served("qwen3"), Match(None, 0, MESSAGES, None), CALL, NOW, Retention.RETAIN) is None


@pytest.mark.families
def test_where_the_check_is_not_exact_answers_are_text(served: Callable[[str], Served]) -> None:
    """DeepSeek V3 opens a tool cycle with another text than its prompt ended with."""
    model = served("deepseek-v3")
    found = Match(None, 0, MESSAGES, None, replays=REPLAYS)
    with_tools = msgspec.structs.replace(CALL, tools=TOOLS)
    assert put_back(model, found, with_tools, NOW, Retention.RETAIN) is None
    assert isinstance(put_back(model, found, CALL, NOW, Retention.RETAIN), MultiSplice)


def test_notes_name_the_messages_in_the_clients_list_and_what_became_of_them() -> None:
    assert notes_on(REPLAYS, REPLAYS[:1]) == (
        Note(NoteCode.REPLAYED_HISTORY, "message 11"),
        Note(NoteCode.RERENDERED_HISTORY, "message 13"),
    )
    assert notes_on(REPLAYS, ()) == (Note(NoteCode.RERENDERED_HISTORY, "message 11, 13"),)
    assert notes_on((), ()) == ()
