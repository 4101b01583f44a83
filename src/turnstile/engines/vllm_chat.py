"""`/v1/chat/completions` with the prompt's ids in `kv_transfer_params`: the engine's own parsers read the answer.

The field is meant for servers that hand prompts to one another. It is ignored in silence by versions that do not
know it and where a message holds anything but text, so no id is believed before the echo was compared. The messages
are not rendered; the tools and the template's arguments decide how the parsers read.
Source: vLLM 0.32.0, `renderers/online_renderer.py` (`_reused_prompt_token_ids`), `entrypoints/openai/chat_completion`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never, final

import msgspec

from turnstile.conversation import JsonText, NamedTool, ReplyDelta, ToolCallDelta, ToolChoice, ToolMode
from turnstile.engines.vllm_door import (
    Ask,
    Piece,
    Sampling,
    Scored,
    StreamOptions,
    event_of,
    natural_log,
    sampling,
    token_id_of,
    with_ids,
)
from turnstile.engines.vllm_shapes import Counts
from turnstile.generation import Prompt


class _Message(msgspec.Struct, frozen=True):
    role: str = "user"
    content: str = "-"


class _Function(msgspec.Struct, frozen=True):
    name: str


class _Named(msgspec.Struct, frozen=True):
    function: _Function
    type: str = "function"


class Reading(msgspec.Struct, frozen=True):
    """The fields of a chat request that decide how its answer is read."""

    tools: tuple[msgspec.Raw, ...] | msgspec.UnsetType
    tool_choice: str | _Named | msgspec.UnsetType
    chat_template_kwargs: msgspec.Raw
    messages: tuple[_Message, ...] = (_Message(),)


class _Body(Sampling, frozen=True, kw_only=True):
    model: str
    tools: tuple[msgspec.Raw, ...] | msgspec.UnsetType
    tool_choice: str | _Named | msgspec.UnsetType
    chat_template_kwargs: msgspec.Raw
    messages: tuple[_Message, ...]
    top_logprobs: int
    logprobs: bool = True
    stream_options: StreamOptions = StreamOptions()
    stream: bool = True
    return_token_ids: bool = True
    return_tokens_as_token_ids: bool = True


class _FunctionDelta(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(msgspec.Struct, frozen=True):
    index: int = 0
    id: str | None = None
    function: _FunctionDelta | None = None


class Said(msgspec.Struct, frozen=True):
    """`delta`, or `message` of a whole answer."""

    reasoning: str | None = None
    content: str | None = None
    tool_calls: tuple[_CallDelta, ...] | None = None


class _Alternative(msgspec.Struct, frozen=True):
    token: str
    logprob: float | None


class _Entry(msgspec.Struct, frozen=True):
    token: str
    logprob: float | None
    top_logprobs: tuple[_Alternative, ...] = ()


class _Logprobs(msgspec.Struct, frozen=True):
    content: list[_Entry] | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: Said = Said()
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class _Chunk(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...]
    id: str = ""
    prompt_token_ids: list[int] | None = None
    usage: Counts | None = None


@final
class Chat:
    """The door; it has no state."""

    path = "/v1/chat/completions"

    def body(self, ask: Ask) -> bytes:
        """See `Door.body`."""
        # Chat refuses a limit that the context has no room for, where the other doors stop at the context's end.
        common = sampling(ask, ask.room)
        how = reading(ask.prompt)
        rest = _Body(
            **msgspec.structs.asdict(common),
            **msgspec.structs.asdict(how),
            model=ask.model,
            top_logprobs=ask.draw.top_logprobs,
        )
        return with_ids(b'{"kv_transfer_params":{"prompt_token_ids":[', ask, b"]}", rest)

    def piece(self, event: bytes) -> Piece:
        """See `Door.piece`."""
        chunk = event_of(event, _Chunk)
        choice = chunk.choices[0] if chunk.choices else _Choice()
        return Piece(
            ids=choice.token_ids or [],
            scored=_scored(choice.logprobs),
            said=said(choice.delta),
            echo=chunk.prompt_token_ids,
            counts=chunk.usage,
            finish=choice.finish_reason or "",
            stop_reason=choice.stop_reason,
            request_id=chunk.id,
        )


def reading(prompt: Prompt) -> Reading:
    """How the engine's parsers are to read the answer to a prompt."""
    choice = prompt.read_with
    tools = tuple(_tool(each) for each in prompt.head.tools)
    return Reading(
        tools=tools or msgspec.UNSET,
        tool_choice=_choice(choice) if tools and choice is not None else msgspec.UNSET,
        chat_template_kwargs=msgspec.Raw(prompt.head.template_kwargs.encode() or b"{}"),
    )


def said(delta: Said) -> ReplyDelta | None:
    """What the parsers read; None if nothing."""
    calls = tuple(
        ToolCallDelta(
            each.index,
            each.id or "",
            (each.function.name if each.function else None) or "",
            (each.function.arguments if each.function else None) or "",
        )
        for each in delta.tool_calls or ()
    )
    told = ReplyDelta(0, delta.reasoning or "", delta.content or "", calls)
    return None if told.is_empty else told


def _tool(declaration: JsonText) -> msgspec.Raw:
    return msgspec.Raw(declaration.encode())


def _choice(choice: ToolChoice) -> str | _Named:
    match choice:
        case NamedTool(name=name):
            return _Named(_Function(name))
        case ToolMode():
            return choice.value
        case _:
            assert_never(choice)


def _scored(logprobs: _Logprobs | None) -> list[Scored] | None:
    if logprobs is None or logprobs.content is None:
        return None
    return [
        Scored(token_id_of(entry.token), natural_log(entry.logprob), _top(entry.top_logprobs))
        for entry in logprobs.content
    ]


def _top(alternatives: Sequence[_Alternative]) -> tuple[tuple[int, float], ...]:
    return tuple(
        (token_id_of(other.token), value) for other in alternatives if (value := natural_log(other.logprob)) is not None
    )
