"""System messages behind the first answer."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from turnstile.conversation import Call, Message, Role, Text
from turnstile.generation import Note
from turnstile.reasons import NoteCode
from turnstile.templates.late_system import Seated, seat_late_system
from turnstile.templates.served import Served

pytestmark = pytest.mark.families


def said(role: Role, text: str) -> Message:
    return Message(role, (Text(text),))


LATE = Call(
    "openai.chat",
    "m",
    (
        said(Role.SYSTEM, "S"),
        said(Role.USER, "q"),
        said(Role.ASSISTANT, "a"),
        said(Role.SYSTEM, "few tokens left"),
        said(Role.USER, "r"),
        said(Role.ASSISTANT, "b"),
        *(said(Role.SYSTEM, f"{left} left") for left in range(4)),
    ),
)


@pytest.mark.parametrize("family_name", ["qwen3", "llama3.1", "glm4.5", "gpt-oss"])
def test_case_g5_a_template_that_takes_them_or_drops_them_gets_them_where_they_stand(
    served: Callable[[str], Served], family_name: str
) -> None:
    assert seat_late_system(served(family_name), LATE) == Seated(LATE, ())


@pytest.mark.parametrize("family_name", ["qwen3.5", "qwen3.6", "qwen3.8"])
def test_case_g5_a_template_that_refuses_them_gets_them_in_a_users_voice_and_in_place(
    served: Callable[[str], Served], family_name: str
) -> None:
    seated = seat_late_system(served(family_name), LATE)
    voices = [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.USER, Role.USER, Role.ASSISTANT, *[Role.USER] * 4]
    assert [message.role for message in seated.call.messages] == voices
    assert [message.text for message in seated.call.messages] == [message.text for message in LATE.messages]
    assert seated.notes == (Note(NoteCode.SYSTEM_AS_USER, "message 3, 6, 7 and 2 more"),)


def test_case_g5_a_call_without_late_ones_is_left_alone(served: Callable[[str], Served]) -> None:
    plain = msgspec.structs.replace(LATE, messages=LATE.messages[:3])
    assert seat_late_system(served("qwen3.5"), plain) == Seated(plain, ())


def test_case_g5_a_template_that_refuses_all_conversations_is_no_reason(served: Callable[[str], Served]) -> None:
    gemma = served("gemma3")
    tools = msgspec.structs.replace(LATE, template_kwargs='{"enable_thinking": false}')
    assert seat_late_system(gemma, tools).notes[0].code is NoteCode.SYSTEM_AS_USER
