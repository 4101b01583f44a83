"""One conversation in any dialect: each turn through another one, on one rollout, and the ids never change."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from turnstile.conversation import Image
from turnstile.protocols import DIALECTS
from turnstile.protocols.base import WireRequest

SYSTEM = "Be brief."
SCHEMA = {"type": "object", "properties": {"p": {"type": "string"}}, "required": ["p"]}
PNG = "iVBORw0KGgpAAAAAAAAAAA=="


class Turn(msgspec.Struct, frozen=True):
    """An answer in no dialect: what a client of any of them knows of it."""

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    """Id, name and arguments."""


class Result(msgspec.Struct, frozen=True):
    """What a tool answered, or failed with."""

    call_id: str
    name: str
    text: str


class Said(msgspec.Struct, frozen=True):
    """What the user said, in one text or several."""

    texts: tuple[str, ...]
    image: str = ""


class Chat:
    """OpenAI chat completions."""

    name = "openai.chat"
    path = "/v1/chat/completions"

    def body(self, *history: Any) -> Any:
        tool = {"type": "function", "function": {"name": "ls", "description": "Lists.", "parameters": SCHEMA}}
        messages = [{"role": "system", "content": SYSTEM}, *(self._message(each) for each in history)]
        return {"model": "m", "messages": messages, "tools": [tool]}

    def _message(self, each: Any) -> Any:
        match each:
            case Said(texts=texts, image=""):
                return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}
            case Said(texts=texts, image=image):
                parts = [{"type": "text", "text": text} for text in texts]
                url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}
                return {"role": "user", "content": [*parts, url]}
            case Result(call_id=call_id, text=text):
                return {"role": "tool", "tool_call_id": call_id, "content": text}
            case Turn(text=text, thinking=thinking, calls=calls):
                said: Any = {"role": "assistant", "content": text or None, "reasoning_content": thinking}
                if calls:
                    said["tool_calls"] = [
                        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
                        for call_id, name, arguments in calls
                    ]
                return said

    def turn(self, body: Any) -> Turn:
        said = body["choices"][0]["message"]
        calls = [(each["id"], each["function"]) for each in said.get("tool_calls", [])]
        return Turn(
            said["content"] or "",
            said.get("reasoning_content", ""),
            tuple((call_id, function["name"], function["arguments"]) for call_id, function in calls),
        )


class Responses:
    """OpenAI Responses."""

    name = "openai.responses"
    path = "/v1/responses"

    def body(self, *history: Any) -> Any:
        tool = {"type": "function", "name": "ls", "description": "Lists.", "parameters": SCHEMA, "strict": False}
        items = [item for each in history for item in self._items(each)]
        return {"model": "m", "instructions": SYSTEM, "input": items, "tools": [tool], "store": False}

    def _items(self, each: Any) -> list[Any]:
        match each:
            case Said(texts=texts, image=image):
                content = [{"type": "input_text", "text": text} for text in texts]
                if image:
                    content.append({"type": "input_image", "image_url": f"data:image/png;base64,{image}"})
                return [{"type": "message", "role": "user", "content": content}]
            case Result(call_id=call_id, text=text):
                return [{"type": "function_call_output", "call_id": call_id, "output": text}]
            case Turn(text=text, thinking=thinking, calls=calls):
                items: list[Any] = []
                if thinking:
                    content = [{"type": "reasoning_text", "text": thinking}]
                    items.append({"type": "reasoning", "summary": [], "content": content})
                if text or not (thinking or calls):
                    content = [{"type": "output_text", "text": text}]
                    items.append({"type": "message", "role": "assistant", "content": content})
                return items + [
                    {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
                    for call_id, name, arguments in calls
                ]

    def turn(self, body: Any) -> Turn:
        texts = [part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"]]
        thoughts = [part["text"] for item in body["output"] if item["type"] == "reasoning" for part in item["content"]]
        calls = [item for item in body["output"] if item["type"] == "function_call"]
        return Turn(
            "".join(texts),
            "".join(thoughts),
            tuple((call["call_id"], call["name"], call["arguments"]) for call in calls),
        )


class Anthropic:
    """Anthropic Messages."""

    name = "anthropic.messages"
    path = "/v1/messages"

    def body(self, *history: Any) -> Any:
        messages: list[Any] = []
        for each in history:
            role = "assistant" if isinstance(each, Turn) else "user"
            joined = isinstance(each, Result) and messages[-1]["content"][0]["type"] == "tool_result"
            if joined:
                messages[-1]["content"] += self._blocks(each)
            else:
                messages.append({"role": role, "content": self._blocks(each)})
        tool = {"name": "ls", "description": "Lists.", "input_schema": SCHEMA}
        return {"model": "m", "max_tokens": 4000, "system": SYSTEM, "messages": messages, "tools": [tool]}

    def _blocks(self, each: Any) -> list[Any]:
        match each:
            case Said(texts=texts, image=image):
                source = {"type": "base64", "media_type": "image/png", "data": image}
                images = [{"type": "image", "source": source}] if image else []
                return [*({"type": "text", "text": text} for text in texts), *images]
            case Result(call_id=call_id, text=text):
                return [{"type": "tool_result", "tool_use_id": call_id, "content": text}]
            case Turn(text=text, thinking=thinking, calls=calls):
                blocks: list[Any] = [{"type": "thinking", "thinking": thinking, "signature": ""}] if thinking else []
                blocks += [{"type": "text", "text": text}] if text else []
                return blocks + [
                    {"type": "tool_use", "id": call_id, "name": name, "input": json.loads(arguments)}
                    for call_id, name, arguments in calls
                ]

    def turn(self, body: Any) -> Turn:
        kinds: dict[str, list[Any]] = {"text": [], "thinking": [], "tool_use": []}
        for block in body["content"]:
            kinds[block["type"]].append(block)
        return Turn(
            "".join(block["text"] for block in kinds["text"]),
            "".join(block["thinking"] for block in kinds["thinking"]),
            tuple((block["id"], block["name"], json.dumps(block["input"])) for block in kinds["tool_use"]),
        )


class Gemini:
    """Google's Gemini."""

    name = "google.gemini"
    path = "/v1beta/models/m:generateContent"

    def body(self, *history: Any) -> Any:
        contents: list[Any] = []
        for each in history:
            role = "model" if isinstance(each, Turn) else "user"
            if isinstance(each, Result) and "functionResponse" in contents[-1]["parts"][0]:
                contents[-1]["parts"] += self._parts(each)
            else:
                contents.append({"role": role, "parts": self._parts(each)})
        function = {"name": "ls", "description": "Lists.", "parametersJsonSchema": SCHEMA}
        return {
            "systemInstruction": {"parts": [{"text": SYSTEM}]},
            "contents": contents,
            "tools": [{"functionDeclarations": [function]}],
            "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
        }

    def _parts(self, each: Any) -> list[Any]:
        match each:
            case Said(texts=texts, image=image):
                images = [{"inlineData": {"mimeType": "image/png", "data": image}}] if image else []
                return [*({"text": text} for text in texts), *images]
            case Result(call_id=call_id, name=name, text=text):
                return [{"functionResponse": {"id": call_id, "name": name, "response": {"output": text}}}]
            case Turn(text=text, thinking=thinking, calls=calls):
                parts: list[Any] = [{"text": thinking, "thought": True}] if thinking else []
                parts += [{"text": text}] if text else []
                return parts + [
                    {"functionCall": {"id": call_id, "name": name, "args": json.loads(arguments)}}
                    for call_id, name, arguments in calls
                ]

    def turn(self, body: Any) -> Turn:
        parts = body["candidates"][0]["content"]["parts"]
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        return Turn(
            "".join(part.get("text", "") for part in parts if not part.get("thought")),
            "".join(part.get("text", "") for part in parts if part.get("thought")),
            tuple((call["id"], call["name"], json.dumps(call["args"])) for call in calls),
        )


SPEAKERS = (Chat(), Responses(), Anthropic(), Gemini())
DOORS = {dialect.name: dialect for dialect in DIALECTS}
PAIRS = pytest.mark.parametrize(
    ("first", "second"),
    [(first, second) for first in SPEAKERS for second in SPEAKERS],
    ids=lambda speaker: speaker.name.split(".")[-1],
)


def calling(path: str) -> str:
    return f'<tool_call>\n{{"name": "ls", "arguments": {{"p": "{path}"}}}}\n</tool_call>'


SHAPES = {
    "text": (Said(("go",)), "Hello there."),
    "several texts": (Said(("go", "on\n", " now")), "Hello there."),
    "a call": (Said(("go",)), calling("/a")),
    "text and parallel calls": (Said(("go",)), f"Both.{calling('/a')}\n{calling('/b')}"),
    "thinking": (Said(("go",)), "<think>\nSo it is.\n</think>\n\nHello."),
    "thinking and a call": (Said(("go",)), f"<think>\nLook.\n</think>\n\nI look.{calling('/ä')}"),
    "odd whitespace": (Said((" \tgo\r\n\n",)), "\n\n Hello \t\r\n\n"),
    "unicode": (
        Said(("e\u0301 \N{DUCK} \u2028 \u200b",)),
        f"\N{DUCK}\u2028 <|im_start|>x \u0085{calling(chr(0x1F986))}",
    ),
    "an empty answer": (Said(("go",)), ""),
}


def asked(room: Any, agent: Any, speaker: Any, *history: Any) -> tuple[Turn, list[int], str]:
    """The answer, the prompt that the engine was given for it, and how it came about."""
    before = len(room.fake.requests)
    answer = room.http.post(agent.handle.base_url + speaker.path, json=speaker.body(*history))
    assert answer.status_code == 200, answer.text
    return speaker.turn(answer.json()), room.fake.requests[before]["prompt"], answer.headers["x-turnstile-history"]


@PAIRS
def test_a_conversation_goes_on_in_another_dialect_as_the_same_ids(
    wired: Callable[..., Any], first: Any, second: Any
) -> None:
    room = wired("qwen3")
    for shape, (opening, written) in SHAPES.items():
        agent = room.agent()
        (answer_ids, _) = room.script(f"{written}<|im_end|>", "Done.<|im_end|>")
        turn, prompt, _ = asked(room, agent, first, opening)
        results = [Result(call_id, name, f"1\n{at} ") for at, (call_id, name, _) in enumerate(turn.calls)]
        _, again, history = asked(room, agent, second, opening, turn, *(results or [Said(("more",))]))
        assert (shape, history) == (shape, "spliced")
        assert again[: len(prompt) + len(answer_ids)] == prompt + answer_ids, shape


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_conversation_costs_the_same_ids_in_every_dialect(wired: Callable[..., Any], shape: str) -> None:
    room = wired("qwen3")
    opening, written = SHAPES[shape]
    prompts: list[tuple[list[int], list[int]]] = []
    for speaker in SPEAKERS:
        agent = room.agent()
        room.script(f"{written}<|im_end|>", "Done.<|im_end|>")
        turn, prompt, _ = asked(room, agent, speaker, opening)
        results = [Result(call_id, name, "1\n2 ") for call_id, name, _ in turn.calls]
        _, again, _ = asked(room, agent, speaker, opening, turn, *(results or [Said(("more",))]))
        prompts.append((prompt, again))
    assert prompts == prompts[:1] * len(SPEAKERS)


def test_four_turns_in_four_dialects_are_one_sequence(wired: Callable[..., Any], wires: Any, tmp_path: Any) -> None:
    room = wired("qwen3")
    agent = room.agent()
    scripted = room.script(*(f"<think>\n{at}\n</think>\n\nLook{calling(f'/{at}')}<|im_end|>" for at in range(4)))
    history: list[Any] = [Said(("Fix it.",))]
    for speaker in SPEAKERS:
        turn, _, _ = asked(room, agent, speaker, *history)
        history += [turn, *(Result(call_id, name, "ok") for call_id, name, _ in turn.calls)]
    assert agent.summary["history"] == {"root": 1, "spliced": 3}
    (sequence,) = agent.exported(tmp_path).sequences
    assert wires.sampled(sequence) == scripted


def test_an_image_is_one_part_of_one_message_in_every_dialect() -> None:
    history = (Said(("What is it?", "Look."), PNG), Turn("A duck."), Said(("Sure?",)))
    calls = [
        DOORS[speaker.name].decode(WireRequest(json.dumps(speaker.body(*history)).encode(), {}, speaker.path)).call
        for speaker in SPEAKERS
    ]
    first = calls[0]
    assert [type(part) for part in first.messages[1].parts][-1] is Image
    assert [(call.messages, call.media) for call in calls] == [(first.messages, first.media)] * len(SPEAKERS)
