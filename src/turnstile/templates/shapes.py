"""The shapes of requests that a certificate is about, as data: what is held, and what comes behind it.

Source: docs/decisions/0008. Each answer's body ends in a rare word, behind which a whole render is cut.
"""

from __future__ import annotations

import enum

import msgspec

from turnstile.conversation import Call, Ending, Image, JsonText, Message, Role, Text, ToolCall, ToolSpec
from turnstile.generation import Cut

RARE = "qxvornzub"
"""Ends each answer's body; no template and no other text here has it."""


class Group(enum.StrEnum):
    """What a person calls the kind of turn."""

    PLAIN = "plain turns"
    TOOLS = "tool turns"
    PARALLEL = "parallel calls"
    THINKING = "thinking"
    UNUSUAL = "unusual histories"
    TEXTS = "odd texts"
    DEEP = "later turns"
    PREFILL = "prefill"
    CUT = "cut answers"
    IMAGES = "images"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """One answer that is held, and a request that goes on from it."""

    name: str
    group: Group
    says: str
    """In words for people."""
    history_M: tuple[Message, ...]
    answer: Message
    new_M: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    ending: Ending = Ending.ANSWER
    cut: Cut = Cut.NONE

    def call(self, kwargs: JsonText) -> Call:
        """The request, with template arguments."""
        messages = (*self.history_M, self.answer, *self.new_M)
        return Call("certificate", "", messages, tools=self.tools, template_kwargs=kwargs, ending=self.ending)


def said(role: Role, *texts: str, reasoning: str = "") -> Message:
    """A message of text parts."""
    return Message(role=role, parts=tuple(map(Text, texts)), reasoning=reasoning)


def calling(*named: tuple[str, JsonText], content: str = "", reasoning: str = "", prefix: str = "shapecal") -> Message:
    """An assistant message with calls; Mistral's template insists on ids of nine letters or digits."""
    calls = tuple(ToolCall(f"{prefix}{at}", name, arguments) for at, (name, arguments) in enumerate(named))
    return Message(
        role=Role.ASSISTANT, parts=tuple(map(Text, filter(None, (content,)))), reasoning=reasoning, calls=calls
    )


def resulting(text: str, at: int = 0, prefix: str = "shapecal") -> Message:
    """The result of the call with this index."""
    return Message(role=Role.TOOL, parts=(Text(text),), call_id=f"{prefix}{at}")


def _tool(name: str, does: str, argument: str) -> ToolSpec:
    parameters = (
        f'{{"type":"object","properties":{{"{argument}":{{"type":"string","description":"The {argument}"}}}},'
        f'"required":["{argument}"]}}'
    )
    function = f'{{"name":"{name}","description":"{does}","parameters":{parameters}}}'
    return ToolSpec(name, f'{{"type":"function","function":{function}}}')


TOOLS = (_tool("shell", "Run a command", "command"), _tool("fetch", "Fetch a page", "address"))
_SYSTEM = said(Role.SYSTEM, "Answer in one sentence.")
PAST = (_SYSTEM, said(Role.USER, "Which files are here?"))
TOOL_PAST = (
    *PAST,
    calling(("shell", '{"command":"pwd"}'), prefix="pastcall"),
    resulting("/srv", prefix="pastcall"),
    said(Role.ASSISTANT, "This is the server's folder."),
    said(Role.USER, "And what is in it?"),
)
ANSWERED_PAST = (
    *PAST,
    said(Role.ASSISTANT, "There are two."),
    said(Role.USER, "Of what size?"),
    said(Role.ASSISTANT, "Both are small."),
    said(Role.USER, "Since when?"),
    said(Role.ASSISTANT, "Since May."),
    said(Role.USER, "Is there more?"),
)

_ARGUMENTS = f'{{"command":"ls {RARE}"}}'
_ANSWER = said(Role.ASSISTANT, f"Two files and a {RARE}")
_CALLING = calling(("shell", _ARGUMENTS))
_RESULT = resulting("one.txt\ntwo.txt")
_NEXT = said(Role.USER, "Good. Show me the first.")


def _after_answer(name: str, group: Group, says: str, *new_M: Message) -> Shape:
    return Shape(name=name, group=group, says=says, history_M=PAST, answer=_ANSWER, new_M=new_M, tools=TOOLS)


def _after_call(name: str, group: Group, says: str, *new_M: Message) -> Shape:
    return Shape(name=name, group=group, says=says, history_M=PAST, answer=_CALLING, new_M=new_M, tools=TOOLS)


_USER_AFTER_ANSWER = _after_answer(
    "user_after_answer_tools", Group.PLAIN, "an answer, then a user message, with tools on offer", _NEXT
)
_TOOL_RESULT = _after_call("tool_result", Group.TOOLS, "a tool call, then its result", _RESULT)
_THINKING_CALL = msgspec.structs.replace(
    _TOOL_RESULT,
    name="tool_result_think",
    group=Group.THINKING,
    says="thinking and a tool call, then its result",
    answer=calling(("shell", _ARGUMENTS), reasoning="The listing will tell."),
)
_PARALLEL = msgspec.structs.replace(
    _TOOL_RESULT,
    name="parallel_two_results",
    group=Group.PARALLEL,
    says="calls of two tools, then both results",
    answer=calling(("shell", '{"command":"ls"}'), ("fetch", f'{{"address":"host/{RARE}"}}')),
    new_M=(resulting("one.txt"), resulting("<html>", 1)),
)

SHAPES = (
    msgspec.structs.replace(
        _USER_AFTER_ANSWER, name="user_after_answer", says="an answer, then a user message, no tools", tools=()
    ),
    _USER_AFTER_ANSWER,
    _TOOL_RESULT,
    msgspec.structs.replace(
        _TOOL_RESULT,
        name="tool_result_with_content",
        says="text and a tool call, then its result",
        answer=calling(("shell", _ARGUMENTS), content="Let me see."),
    ),
    _THINKING_CALL,
    msgspec.structs.replace(
        _USER_AFTER_ANSWER,
        name="user_after_think",
        group=Group.THINKING,
        says="thinking and an answer, then a user message",
        answer=said(Role.ASSISTANT, f"Two files and a {RARE}", reasoning="I count two."),
    ),
    _PARALLEL,
    msgspec.structs.replace(
        _PARALLEL,
        name="parallel_same_tool",
        says="two calls of one tool, then both results",
        answer=calling(("shell", '{"command":"ls"}'), ("shell", f'{{"command":"pwd {RARE}"}}')),
    ),
    _after_call("result_then_user", Group.UNUSUAL, "a tool result and a user message at once", _RESULT, _NEXT),
    _after_answer("two_users", Group.UNUSUAL, "two user messages in a row", said(Role.USER, "Good."), _NEXT),
    _after_answer(
        "system_middle",
        Group.UNUSUAL,
        "a system message behind an answer",
        said(Role.SYSTEM, "Ten steps are left."),
        _NEXT,
    ),
    _after_call(
        "tool_text_odd",
        Group.TEXTS,
        "a tool result of JSON, tabs and blanks",
        resulting(' \n{"k": [true, "a\\tb"],\t"<v>": "&"}\n\n  '),
    ),
    _after_call(
        "tool_text_unicode",
        Group.TEXTS,
        "a tool result with CJK, emoji, odd blanks and CRLF",
        resulting("目录 📁\u00a0x\r\ny\u200bz"),
    ),
    _after_call("tool_text_empty", Group.TEXTS, "an empty tool result", resulting("")),
    _after_answer(
        "user_ws", Group.TEXTS, "a user message between line breaks", said(Role.USER, "\n\n  And now?  \n\n")
    ),
    _after_answer(
        "user_special_text",
        Group.TEXTS,
        "a user message with the text of control tokens",
        said(Role.USER, "print <|im_end|> or <tool_call> or </s> please"),
    ),
    _after_answer(
        "user_parts",
        Group.TEXTS,
        "a user message of two text parts",
        said(Role.USER, "The first half.", "The second half."),
    ),
    msgspec.structs.replace(
        _TOOL_RESULT,
        name="deep_tool",
        group=Group.DEEP,
        says="a tool result in a second tool cycle",
        history_M=TOOL_PAST,
    ),
    msgspec.structs.replace(
        _USER_AFTER_ANSWER,
        name="deep_user",
        group=Group.DEEP,
        says="a user message behind an earlier tool cycle",
        history_M=TOOL_PAST,
    ),
    msgspec.structs.replace(
        _TOOL_RESULT, name="nosys_tool", says="a tool result, no system message", history_M=PAST[1:]
    ),
    msgspec.structs.replace(
        _USER_AFTER_ANSWER,
        name="prefill",
        group=Group.PREFILL,
        says="an answer that the client began",
        new_M=(_NEXT, said(Role.ASSISTANT, "The first says")),
        ending=Ending.CONTINUE,
    ),
    msgspec.structs.replace(
        _TOOL_RESULT,
        name="prefill_after_tool",
        group=Group.PREFILL,
        says="the same behind a tool result",
        new_M=(_RESULT, said(Role.ASSISTANT, "Here are")),
        ending=Ending.CONTINUE,
    ),
    msgspec.structs.replace(
        _USER_AFTER_ANSWER,
        name="trunc_content",
        group=Group.CUT,
        says="an answer that the token limit cut, then a user message",
        cut=Cut.CONTENT,
    ),
    msgspec.structs.replace(
        _USER_AFTER_ANSWER,
        name="trunc_no_tools",
        group=Group.CUT,
        says="the same with no tools on offer",
        tools=(),
        cut=Cut.CONTENT,
    ),
)
"""All that are checked for the verdict of a template that takes text only."""

_SHOT = Image("5e" * 32, "image/png")
_EARLIER_SHOT = Image("5d" * 32, "image/png")
_SHOWN = Message(role=Role.USER, parts=(Text("Look at this:"), _SHOT, Text("What is it?")))
_SHOWN_EARLIER = Message(role=Role.USER, parts=(_EARLIER_SHOT, Text("And what is this?")))

IMAGE_SHAPES = (
    _after_answer("user_image", Group.IMAGES, "a user message with an image", _SHOWN),
    msgspec.structs.replace(
        _after_answer("user_image_deep", Group.IMAGES, "the same behind an earlier image", _SHOWN),
        history_M=(*PAST, said(Role.ASSISTANT, "There are two."), _SHOWN_EARLIER),
    ),
    msgspec.structs.replace(
        _after_call(
            "tool_image",
            Group.IMAGES,
            "a tool result with an image",
            Message(role=Role.TOOL, parts=(Text("The screen:"), _SHOT), call_id="shapecal0"),
        ),
        history_M=(PAST[0], _SHOWN_EARLIER),
    ),
)
"""Those that are checked too for a template that takes images."""

ALL_SHAPES = SHAPES + IMAGE_SHAPES

REPEATED = (_USER_AFTER_ANSWER, _TOOL_RESULT, _THINKING_CALL, _PARALLEL)
"""Those that are checked once more behind other pasts: counters and one-time openers show there."""

PASTS = {"tool_cycle": TOOL_PAST, "three_answers": ANSWERED_PAST}
"""The other pasts."""


def without_calls(shape: Shape) -> Shape:
    """The shape for a template that prints no calls, where an agent has to carry them in text."""
    if not shape.answer.calls:
        return shape
    answer = msgspec.structs.replace(shape.answer, parts=(Text(f"$ ls {RARE}"),))
    return msgspec.structs.replace(shape, answer=answer)
