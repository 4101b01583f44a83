"""System messages behind the first answer: where they stand, or, where the template refuses them, as a user's.

Agents put budgets and reminders there (public case G5). Moved to the front they would change the head with every
turn; refused, they would end the rollout. Said in a user's voice they stand where the client put them.
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime

import msgspec

from turnstile.conversation import Call, JsonText, Message, Role, Text
from turnstile.generation import Note
from turnstile.reasons import NoteCode
from turnstile.templates.render import GenerationPrompt, TemplateFailed
from turnstile.templates.served import Scene, Served, leading_system, render

_NOW = datetime(2024, 1, 1, tzinfo=UTC)
_LISTED = 3
_ASKED = Message(Role.USER, (Text("zquser"),))
_ANSWERED = Message(Role.ASSISTANT, (Text("zqanswer"),))
_LATE = Message(Role.SYSTEM, (Text("zqsystem"),))


class Seated(msgspec.Struct, frozen=True):
    """A call whose messages the template takes where they stand."""

    call: Call
    notes: tuple[Note, ...]
    """What was put into another voice."""


def seat_late_system(served: Served, call: Call) -> Seated:
    """The call, with its late system messages in a user's voice if the template refuses them.

    Of matching and rendering, both see the result, so that the same history is the same one at each turn.

    Raises: CallerError if tools or template arguments are no JSON objects.
    """
    start = len(leading_system(call.messages))
    late = [at for at, message in enumerate(call.messages[start:], start) if message.role is Role.SYSTEM]
    tools = tuple(tool.declaration for tool in call.tools)
    if not late or not _refuses_late_system(served.for_tools(tools), tools, call.template_kwargs):
        return Seated(call, ())
    messages = list(call.messages)
    for at in late:
        messages[at] = msgspec.structs.replace(messages[at], role=Role.USER)
    more = f" and {len(late) - _LISTED} more" if len(late) > _LISTED else ""
    places = ", ".join(map(str, late[:_LISTED]))
    note = Note(NoteCode.SYSTEM_AS_USER, f"message {places}{more}")
    return Seated(msgspec.structs.replace(call, messages=tuple(messages)), (note,))


@functools.lru_cache(maxsize=64)
def _refuses_late_system(served: Served, tools: tuple[JsonText, ...], kwargs: JsonText) -> bool:
    """Whether it is the system message behind an answer at which the template raises."""
    scene = Scene((), tools, kwargs, _NOW)
    without = (_ASKED, _ANSWERED, _ASKED)
    return _renders(served, scene, without) and not _renders(served, scene, (*without[:2], _LATE, _ASKED))


def _renders(served: Served, scene: Scene, messages: tuple[Message, ...]) -> bool:
    try:
        render(served, scene, messages, GenerationPrompt.ADD)
    except TemplateFailed:
        return False
    return True
