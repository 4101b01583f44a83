"""A Responses answer as it stands on the wire. `UNSET` members are left out.

Source: OpenAI's API reference as of the `openai` package 3.57, whose types name the members that are never left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from turnstile.conversation import Answer, ReplyFinish, Usage
from turnstile.errors import TurnstileError
from turnstile.protocols.base import AnswerHead
from turnstile.protocols.chat_answer import WireTokenLogprob
from turnstile.protocols.responses_ids import response_id

_NULL = Raw(b"null")


class WireOutputText(msgspec.Struct, frozen=True):
    """Text of a message."""

    text: str
    logprobs: Sequence[WireTokenLogprob] = ()
    annotations: tuple[()] = ()
    type: str = "output_text"


class WireReasoningText(msgspec.Struct, frozen=True):
    """A piece of reasoning."""

    text: str
    type: str = "reasoning_text"


class WireSummaryText(msgspec.Struct, frozen=True):
    """A piece of reasoning, for a client that asked for a summary."""

    text: str
    type: str = "summary_text"


WireContent: TypeAlias = WireOutputText | WireReasoningText | WireSummaryText


class WireMessageItem(msgspec.Struct, frozen=True):
    """Text that the model wrote."""

    id: str
    status: str
    content: tuple[WireOutputText, ...] = ()
    role: str = "assistant"
    type: str = "message"


class WireReasoningItem(msgspec.Struct, frozen=True):
    """Reasoning."""

    id: str
    status: str
    summary: tuple[WireSummaryText, ...] = ()
    content: tuple[WireReasoningText, ...] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET
    type: str = "reasoning"


class WireFunctionCallItem(msgspec.Struct, frozen=True):
    """A call with JSON arguments."""

    id: str
    status: str
    call_id: str
    name: str
    arguments: str = ""
    namespace: str | UnsetType = UNSET
    type: str = "function_call"


class WireCustomCallItem(msgspec.Struct, frozen=True):
    """A call with a free text."""

    id: str
    status: str
    call_id: str
    name: str
    input: str = ""
    namespace: str | UnsetType = UNSET
    type: str = "custom_tool_call"


WireOutputItem: TypeAlias = WireMessageItem | WireReasoningItem | WireFunctionCallItem | WireCustomCallItem


class WireInputDetails(msgspec.Struct, frozen=True):
    """How much of the prompt was not run again."""

    cached_tokens: int
    cache_write_tokens: int = 0


class WireOutputDetails(msgspec.Struct, frozen=True):
    """Of the output; engines do not count reasoning apart, so this says 0."""

    reasoning_tokens: int = 0


class WireUsage(msgspec.Struct, frozen=True):
    """Token counts."""

    input_tokens: int
    input_tokens_details: WireInputDetails
    output_tokens: int
    output_tokens_details: WireOutputDetails
    total_tokens: int


class WireFailure(msgspec.Struct, frozen=True):
    """Why there is no whole answer."""

    code: str
    message: str


class WireIncomplete(msgspec.Struct, frozen=True):
    """Why an answer ends early."""

    reason: str


class WireResponse(msgspec.Struct, frozen=True):
    """A response, finished or not. From `instructions` on: what the request said, or what holds if it said nothing."""

    id: str
    created_at: int
    model: str
    status: str
    output: Sequence[WireOutputItem] = ()
    usage: WireUsage | None = None
    error: WireFailure | None = None
    incomplete_details: WireIncomplete | None = None
    object: str = "response"
    background: bool = False
    truncation: str = "disabled"
    service_tier: str = "default"
    instructions: Raw = _NULL
    max_output_tokens: Raw = _NULL
    max_tool_calls: Raw = _NULL
    metadata: Raw = Raw(b"{}")
    parallel_tool_calls: Raw = Raw(b"true")
    previous_response_id: Raw = _NULL
    prompt_cache_key: Raw = _NULL
    reasoning: Raw = Raw(b'{"effort":null,"summary":null}')
    safety_identifier: Raw = _NULL
    store: Raw = Raw(b"true")
    temperature: Raw = Raw(b"1.0")
    text: Raw = Raw(b'{"format":{"type":"text"}}')
    tool_choice: Raw = Raw(b'"auto"')
    tools: Raw = Raw(b"[]")
    top_logprobs: Raw = Raw(b"0")
    top_p: Raw = Raw(b"1.0")
    user: Raw = _NULL


def begun(head: AnswerHead, echo: Mapping[str, Raw]) -> WireResponse:
    """A response of which nothing has been said yet.

    Args:
        head: which answer it is.
        echo: members of the request that it repeats; null stands for what holds without them.
    """
    said = {name: raw for name, raw in echo.items() if bytes(raw) != b"null"}
    return msgspec.structs.replace(
        WireResponse(response_id(head.call_id), head.created_s, head.model, "in_progress"), **said
    )


def ended(response: WireResponse, output: Sequence[WireOutputItem], answer: Answer) -> WireResponse:
    """The same response with its whole output."""
    is_cut = is_incomplete(answer)
    return msgspec.structs.replace(
        response,
        status="incomplete" if is_cut else "completed",
        output=output,
        usage=usage_of(answer.usage),
        incomplete_details=WireIncomplete("max_output_tokens") if is_cut else None,
    )


def failed(response: WireResponse, output: Sequence[WireOutputItem], error: TurnstileError) -> WireResponse:
    """The same response, broken off behind its finished items.

    Source: Codex tries again unless the code is `context_length_exceeded` or tells of a quota.
    """
    return msgspec.structs.replace(
        response, status="failed", output=output, error=WireFailure(_failure_code(error), str(error))
    )


def _failure_code(error: TurnstileError) -> str:
    match error.status:
        case _ if error.code == "context_length_exceeded":
            return error.code
        case 429:
            return "rate_limit_exceeded"
        case status if status < 500:
            return "invalid_prompt"
        case _:
            return "server_error"


def is_incomplete(answer: Answer) -> bool:
    """Whether the token limit, or the end of the context, cut the answer."""
    return answer.replies[0].finish is ReplyFinish.LENGTH


def usage_of(usage: Usage) -> WireUsage:
    """Token counts."""
    return WireUsage(
        usage.prompt_tokens,
        WireInputDetails(usage.cached_tokens or 0),
        usage.completion_tokens,
        WireOutputDetails(),
        usage.prompt_tokens + usage.completion_tokens,
    )
