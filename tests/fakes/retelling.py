"""What clients of each dialect do to an answer that they bring back: the same words in their own spelling.

`retold` makes an echo of nothing but what the answer says: no ids of items, no signatures. So whatever a test changes
in a `Heard` (its text, its calls, their ids) is what the server is sent.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec


def retold(dialect: str, heard: Any, **changes: Any) -> Any:
    """An answer, changed or not, as a client that keeps only its words sends it; a call id of "" is left out."""
    said = msgspec.structs.replace(heard, **changes)
    return msgspec.structs.replace(said, echo=tuple(_ECHOES[dialect](said)))


def no_text(dialect: str, heard: Any) -> list[Any]:
    """An answer of calls alone in every spelling that its dialect has for no text."""
    echo = list(heard.echo)
    return [msgspec.structs.replace(heard, echo=tuple(each)) for each in _NO_TEXTS[dialect](echo)]


def _chat(said: Any) -> list[dict[str, Any]]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text}
    if said.reasoning:
        message["reasoning_content"] = said.reasoning
    if said.calls:
        message["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": _written(call)}}
            for call in said.calls
        ]
    return [message]


def _responses(said: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if said.reasoning:
        content = [{"type": "reasoning_text", "text": said.reasoning}]
        items.append({"type": "reasoning", "summary": [], "content": content})
    if said.text or not said.calls:
        items.append({"role": "assistant", "content": [{"type": "output_text", "text": said.text}]})
    return items + [
        {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": _written(call)}
        for call in said.calls
    ]


def _anthropic(said: Any) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if said.reasoning:
        blocks.append({"type": "thinking", "thinking": said.reasoning, "signature": ""})
    if said.text:
        blocks.append({"type": "text", "text": said.text})
    return blocks + [
        {"type": "tool_use", "id": call.call_id, "name": call.name, "input": call.arguments} for call in said.calls
    ]


def _gemini(said: Any) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"text": said.reasoning, "thought": True}] if said.reasoning else []
    parts += [{"text": said.text}] if said.text else []
    for call in said.calls:
        named = {"id": call.call_id} if call.call_id else {}
        parts.append({"functionCall": {**named, "name": call.name, "args": call.arguments}})
    return parts


_ECHOES: dict[str, Any] = {
    "openai.chat": _chat,
    "openai.responses": _responses,
    "anthropic.messages": _anthropic,
    "google.gemini": _gemini,
}


def _no_chat_text(echo: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    (message,) = echo
    bare = {name: value for name, value in message.items() if name != "content"}
    empty = [{"type": "text", "text": ""}]
    return [[bare], *([{**bare, "content": each}] for each in (None, "", [], empty))]


def _no_responses_text(echo: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    empty = [{"type": "output_text", "text": ""}]
    return [echo, *([{"role": "assistant", "content": each}, *echo] for each in ("", [], empty))]


def _no_anthropic_text(echo: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [echo, *([{"type": "text", "text": each}, *echo] for each in ("", " \n"))]


def _no_gemini_text(echo: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [echo, [{"text": ""}, *echo], [*echo, {"text": ""}], [{"text": "", "thought": True}, *echo]]


_NO_TEXTS: dict[str, Any] = {
    "openai.chat": _no_chat_text,
    "openai.responses": _no_responses_text,
    "anthropic.messages": _no_anthropic_text,
    "google.gemini": _no_gemini_text,
}


def _written(call: Any) -> str:
    return json.dumps(call.arguments, ensure_ascii=False)
