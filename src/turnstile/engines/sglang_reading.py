"""SGLang's own parsers, asked with the text of a whole answer: for formats of tool calls that Turnstile does not know.

Both routes take text and keep nothing, so an answer is read once, when it is whole, and a client that streams is told
all of it then. Source: sglang 0.5.23, `srt/entrypoints/http_server.py` (`/separate_reasoning`, `/parse_function_call`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from turnstile.conversation import ReplyDelta, ToolCallDelta, ToolMode
from turnstile.engines.sglang_shapes import ModelInfo, broken, read
from turnstile.engines.wire import WireAnswer
from turnstile.generation import Draw, Generation, Prompt
from turnstile.tokens import Vocabulary

Post = Callable[[str, bytes], Awaitable[WireAnswer]]
"""A route and a body in, an answer out."""


class _ReasoningBody(msgspec.Struct, frozen=True):
    text: str
    reasoning_parser: str


class _Separated(msgspec.Struct, frozen=True):
    reasoning_text: str | None = None
    text: str | None = None


class _CallsBody(msgspec.Struct, frozen=True):
    text: str
    tools: tuple[msgspec.Raw, ...]
    tool_call_parser: str


class _Call(msgspec.Struct, frozen=True):
    name: str | None = None
    parameters: str = ""


class _Parsed(msgspec.Struct, frozen=True):
    normal_text: str | None = None
    calls: tuple[_Call, ...] = ()


async def reading_of(post: Post, model: ModelInfo, prompt: Prompt, text: str) -> ReplyDelta:
    """How an answer reads.

    Args:
        post: how the server is asked.
        model: whose parsers it was started with.
        prompt: whose tools may be called, and `read_with`.
        text: of the answer, control tokens included, without what ended it.

    Raises: EngineError if a parser fails.
    """
    reasoning, content = "", text
    if model.reasoning_parser:
        body = msgspec.json.encode(_ReasoningBody(text, model.reasoning_parser))
        separated = read(await post("/separate_reasoning", body), _Separated)
        reasoning, content = separated.reasoning_text or "", separated.text or ""
    calls: tuple[_Call, ...] = ()
    if model.tool_call_parser and prompt.head.tools and prompt.read_with is not ToolMode.NONE:
        tools = tuple(msgspec.Raw(tool.encode()) for tool in prompt.head.tools)
        body = msgspec.json.encode(_CallsBody(content, tools, model.tool_call_parser))
        parsed = read(await post("/parse_function_call", body), _Parsed)
        content, calls = parsed.normal_text or "", parsed.calls
    return ReplyDelta(
        reasoning=reasoning,
        content=content,
        calls=tuple(_told(index, call) for index, call in enumerate(calls)),
    )


def text_of(generation: Generation, draw: Draw, vocabulary: Vocabulary) -> str:
    """What an answer says, control tokens by their names, up to the stop that ended it."""
    ids = generation.ids_S.tolist()
    if ids and ids[-1] in draw.stop_ids:
        ids = ids[:-1]
    text = b"".join(vocabulary.token_bytes(token_id) for token_id in ids).decode(errors="replace")
    return text.partition(generation.stop_string)[0] if generation.stop_string else text


def _told(index: int, call: _Call) -> ToolCallDelta:
    if not call.name:
        raise broken("`calls` of `/parse_function_call` has one without a name")
    return ToolCallDelta(index, name=call.name, arguments=call.parameters)
