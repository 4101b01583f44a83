"""Schemas made to be slow or endless, in each dialect that takes them: refused or served, and others go on."""

from __future__ import annotations

import json
from typing import Any

import pytest

ADDS_ITSELF = {"allOf": [{"$ref": "#/$defs/a"}]}
BOMBS: dict[str, Any] = {
    "endless": {"$defs": {"a": {"anyOf": [ADDS_ITSELF]}}, "anyOf": [ADDS_ITSELF]},
    "doubling": {"$defs": {"a": {"properties": {"x": ADDS_ITSELF, "y": ADDS_ITSELF}}}, "$ref": "#/$defs/a"},
    "chain": {
        "$defs": {f"a{number}": {"$ref": f"#/$defs/a{number + 1}"} for number in range(2000)},
        "properties": {"x": {"$ref": "#/$defs/a0"}},
    },
    "wide": {"properties": {"x": {"enum": [f"value {number}" for number in range(60_000)]}}},
    "choices": {"anyOf": [{"type": "string", "maxLength": number} for number in range(10_000)]},
    "counts": {"properties": {"x": {"type": "array", "minItems": 10**18, "maxItems": 10**18}}},
    "pattern": {"properties": {"x": {"type": "string", "pattern": "(a+)+$" * 1000}}},
}


def tools(name: str, schema: Any) -> dict[str, Any]:
    """A request that has to call a tool with such parameters."""
    match name:
        case "openai.chat":
            function = {"name": "t", "parameters": schema}
            return {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}
        case "openai.responses":
            return {"tools": [{"type": "function", "name": "t", "parameters": schema}], "tool_choice": "required"}
        case _:
            return {"tools": [{"name": "t", "input_schema": schema}], "tool_choice": {"type": "any"}}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("dialect", ["openai.chat", "openai.responses", "anthropic.messages"])
def test_a_schema_that_is_a_bomb_stops_nobody(guarded: Any, speaking: Any, dialect: str) -> None:
    speaker = speaking.SPEAKERS[dialect]
    talker = speaking.Talker(guarded, speaker, guarded.agent())
    guarded.fake.answer = lambda _: guarded.ids('<tool_call>\n{"name": "t", "arguments": {}}\n</tool_call><|im_end|>')
    for name, bomb in BOMBS.items():
        told = talker.send(speaker.body("go", **tools(dialect, {"type": "object", **bomb})), False)
        assert told.status in (200, 400), (name, told.body)
        if name in ("doubling", "wide", "choices"):
            assert (told.status, b"too large" in told.body) == (400, True), (name, told.body)
        assert guarded.http.get(f"{guarded.client.url}/healthz").status_code == 200


def held_to(name: str, schema: Any) -> dict[str, Any]:
    """A request whose answer has to be JSON of such a schema."""
    if name == "openai.chat":
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}}
    return {"tools": [], "responseMimeType": "application/json", "responseJsonSchema": schema}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("dialect", ["openai.chat", "google.gemini"])
def test_a_bomb_that_an_answer_is_held_to_stops_nobody(guarded: Any, speaking: Any, dialect: str) -> None:
    speaker = speaking.SPEAKERS[dialect]
    talker = speaking.Talker(guarded, speaker, guarded.agent())
    guarded.fake.answer = lambda _: guarded.ids('{"x": 1}<|im_end|>')
    for name, bomb in BOMBS.items():
        told = talker.send(speaker.body("go", **held_to(dialect, {"type": "object", **bomb})), False)
        assert told.status in (200, 400), (name, told.body)
        assert json.loads(told.body)
        assert guarded.http.get(f"{guarded.client.url}/healthz").status_code == 200
