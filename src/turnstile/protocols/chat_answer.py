"""A chat completions answer as it stands on the wire. `UNSET` members are left out.

Source: OpenAI's API reference as of the `openai` package 3.57; `reasoning_content` is the name that most open
clients read and send back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from turnstile.conversation import Message, Reply, ReplyFinish, TokenLogprob, ToolCall, Usage
from turnstile.protocols.chat_decode import CallForm

UNKNOWN_LOGPROB = -9999.0
"""What a client is told of a log-probability that is unknown or not finite.

OpenAI documents this number for tokens too unlikely to have one, and its SDK's type admits no null. It exists
on this wire only.
"""


class WireCalled(msgspec.Struct, frozen=True):
    """A function's name and arguments."""

    name: str | UnsetType = UNSET
    arguments: str = ""


class WireCall(msgspec.Struct, frozen=True):
    """A tool call, or a piece of one."""

    function: WireCalled
    index: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class WireAnswerMessage(msgspec.Struct, frozen=True):
    """What a choice says, whole."""

    content: str | None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[WireCall] | UnsetType = UNSET
    function_call: WireCalled | UnsetType = UNSET
    role: str = "assistant"
    refusal: None = None


class WireDelta(msgspec.Struct, frozen=True):
    """What a choice gained."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[WireCall] | UnsetType = UNSET
    function_call: WireCalled | UnsetType = UNSET


class WireTopLogprob(msgspec.Struct, frozen=True):
    """A token that might have stood in another's place."""

    token: str
    logprob: float
    bytes: list[int]


class WireTokenLogprob(msgspec.Struct, frozen=True):
    """A sampled token."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[WireTopLogprob]


class WireLogprobs(msgspec.Struct, frozen=True):
    """Sampled tokens in order."""

    content: list[WireTokenLogprob]
    refusal: None = None


class WireChoice(msgspec.Struct, frozen=True):
    """One choice of a whole answer."""

    index: int
    message: WireAnswerMessage
    finish_reason: str
    logprobs: WireLogprobs | UnsetType = UNSET


class WireChunkChoice(msgspec.Struct, frozen=True):
    """One choice of a chunk."""

    index: int
    delta: WireDelta
    finish_reason: str | None = None
    logprobs: WireLogprobs | UnsetType = UNSET


class WireCached(msgspec.Struct, frozen=True):
    """How much of the prompt was not run again."""

    cached_tokens: int


class WireUsage(msgspec.Struct, frozen=True):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: WireCached | UnsetType = UNSET


class WireCompletion(msgspec.Struct, frozen=True):
    """A whole answer."""

    id: str
    created: int
    model: str
    choices: list[WireChoice]
    usage: WireUsage
    object: str = "chat.completion"


class WireChunk(msgspec.Struct, frozen=True):
    """One event of a stream."""

    id: str
    created: int
    model: str
    choices: list[WireChunkChoice]
    usage: WireUsage | UnsetType | None = UNSET
    """Where the client asked for usage: null in all events but the last."""
    object: str = "chat.completion.chunk"


def usage_of(usage: Usage) -> WireUsage:
    """Token counts, with the cached ones where the engine said."""
    return WireUsage(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
        UNSET if usage.cached_tokens is None else WireCached(usage.cached_tokens),
    )


def message_of(message: Message, form: CallForm) -> WireAnswerMessage:
    """A finished message. Its content is null when there are calls and no text, else a string."""
    calls = message.calls
    return WireAnswerMessage(
        content=message.text or (None if calls else ""),
        reasoning_content=message.reasoning or UNSET,
        tool_calls=[_call(call) for call in calls] if calls and form is CallForm.TOOL_CALLS else UNSET,
        function_call=WireCalled(calls[0].name, calls[0].arguments)
        if calls and form is CallForm.FUNCTION_CALL
        else UNSET,
    )


def _call(call: ToolCall) -> WireCall:
    return WireCall(WireCalled(call.name, call.arguments), id=call.call_id, type="function")


def finish_reason_of(reply: Reply, form: CallForm) -> str:
    """Why a choice ended; a choice that stopped after making a call ended for the call."""
    if reply.finish is ReplyFinish.LENGTH:
        return "length"
    called = reply.finish is ReplyFinish.TOOL_CALLS or bool(reply.message.calls)
    if not called:
        return "stop"
    return "function_call" if form is CallForm.FUNCTION_CALL else "tool_calls"


def logprobs_of(tokens: Sequence[TokenLogprob], top: int | None) -> WireLogprobs | UnsetType:
    """Tokens as OpenAI shows them, with at most `top` alternatives; nothing if the client asked for none.

    A token that ends inside a character shows U+FFFD as its text; its `bytes` are exact.
    """
    if top is None:
        return UNSET
    return WireLogprobs([_token(token, top) for token in tokens])


def _token(token: TokenLogprob, top: int) -> WireTokenLogprob:
    return WireTokenLogprob(
        _text(token.token),
        _number(token.logprob),
        list(token.token),
        [WireTopLogprob(_text(text), _number(logprob), list(text)) for text, logprob in token.top[:top]],
    )


def _text(token: bytes) -> str:
    return token.decode(errors="replace")


def _number(logprob: float | None) -> float:
    return logprob if logprob is not None and math.isfinite(logprob) else UNKNOWN_LOGPROB
