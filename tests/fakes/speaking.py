"""One conversation in every dialect: what a client sends, and what it reads out of an answer, whole or broken off.

A history is a list of what was said: a text is a user message, `Heard` an answer, `Result` what a tool said. Each
speaker turns it into its dialect's body and back, as the harnesses of that dialect do.
"""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec

LS = {"type": "object", "properties": {"p": {"type": "string"}, "all": {"type": "boolean", "default": False}}}


class Called(msgspec.Struct, frozen=True):
    """A call that a client read."""

    call_id: str
    name: str
    arguments: dict[str, Any]


class Heard(msgspec.Struct, frozen=True):
    """An answer, or the finished items of one that broke off."""

    reasoning: str = ""
    text: str = ""
    calls: tuple[Called, ...] = ()
    echo: tuple[dict[str, Any], ...] = ()
    """What the client puts into its history for it."""


class Result(msgspec.Struct, frozen=True):
    """What a tool said."""

    call: Called
    text: str


class System(msgspec.Struct, frozen=True):
    """What stands at the head, in one text or in blocks."""

    texts: tuple[str, ...]


def in_blocks(system: System, kind: str) -> Any:
    """A bare text where there is one."""
    blocks = [{"type": kind, "text": text} for text in system.texts]
    return blocks if len(blocks) > 1 else system.texts[0]


def data_of(body: bytes) -> list[dict[str, Any]]:
    """The events of a stream that are whole, end mark and comments left out."""
    whole = body[: body.rfind(b"\n\n") + 2]
    lines = [line.removeprefix(b"data: ") for line in whole.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


class Chat:
    """OpenAI chat completions."""

    name = "openai.chat"
    keeps_items = False
    """Whether clients of this dialect are told the end of each item."""
    keep_alive = b": "

    def url(self, handle: Any, stream: bool) -> str:
        return f"{handle.openai_base_url}/chat/completions"

    def body(self, *history: Any, stream: bool = False, **fields: Any) -> bytes:
        messages: list[dict[str, Any]] = []
        for said in history:
            match said:
                case Heard():
                    messages += said.echo
                case Result():
                    messages.append({"role": "tool", "tool_call_id": said.call.call_id, "content": said.text})
                case System():
                    messages.append({"role": "system", "content": in_blocks(said, "text")})
                case _:
                    messages.append({"role": "user", "content": said})
        tool = {"type": "function", "function": {"name": "ls", "parameters": LS}}
        return json.dumps({"model": "m", "messages": messages, "tools": [tool], "stream": stream, **fields}).encode()

    def heard(self, body: bytes, stream: bool) -> Heard:
        """An answer, or what came of one: chat has no ends of items, so a call counts when its arguments are JSON."""
        if not stream:
            return self._heard(json.loads(body)["choices"][0]["message"])
        said: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
        for event in data_of(body):
            for choice in event.get("choices", []):
                delta = choice["delta"]
                for name in ("content", "reasoning_content"):
                    said[name] += delta.get(name) or ""
                for piece in delta.get("tool_calls", []):
                    if piece["index"] == len(said["tool_calls"]):
                        empty = {"name": "", "arguments": ""}
                        said["tool_calls"].append({"id": piece["id"], "type": "function", "function": empty})
                    for name in ("name", "arguments"):
                        said["tool_calls"][piece["index"]]["function"][name] += piece["function"].get(name) or ""
        said["tool_calls"] = [call for call in said["tool_calls"] if call["function"]["arguments"].endswith("}")]
        return self._heard(said)

    def _heard(self, said: dict[str, Any]) -> Heard:
        kept = {name: said[name] for name in ("content", "reasoning_content", "tool_calls") if said.get(name)}
        calls = tuple(
            Called(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in kept.get("tool_calls", [])
        )
        echo = ({"role": "assistant", "content": "", **kept},) if kept else ()
        return Heard(kept.get("reasoning_content", ""), kept.get("content", ""), calls, echo)

    def is_refusal(self, body: bytes) -> bool:
        error = json.loads(body).get("error", {})
        return {"message", "type"} <= set(error)

    def ends_cleanly(self, body: bytes) -> bool:
        return b"[DONE]" in body or b'"finish_reason":"' in body

    def tells_error(self, body: bytes) -> bool:
        return "error" in data_of(body)[-1]


class Responses:
    """OpenAI Responses."""

    name = "openai.responses"
    keeps_items = True
    keep_alive = b": "

    def url(self, handle: Any, stream: bool) -> str:
        return f"{handle.openai_base_url}/responses"

    def body(self, *history: Any, stream: bool = False, **fields: Any) -> bytes:
        items: list[dict[str, Any]] = []
        for said in history:
            match said:
                case Heard():
                    items += said.echo
                case Result():
                    items.append({"type": "function_call_output", "call_id": said.call.call_id, "output": said.text})
                case System():
                    items.append({"role": "developer", "content": in_blocks(said, "input_text")})
                case _:
                    items.append({"role": "user", "content": said})
        tool = {"type": "function", "name": "ls", "parameters": LS}
        asked = {"model": "m", "input": items, "tools": [tool], "stream": stream, "store": False}
        return json.dumps({**asked, "reasoning": {"summary": "auto"}, **fields}).encode()

    def heard(self, body: bytes, stream: bool) -> Heard:
        if stream:
            events = data_of(body)
            items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        else:
            items = json.loads(body)["output"]
        reasoning = "".join(
            part["text"]
            for item in items
            if item["type"] == "reasoning"
            for part in (*item["summary"], *(item.get("content") or ()))
        )
        texts = (part["text"] for item in items if item["type"] == "message" for part in item["content"])
        calls = tuple(
            Called(item["call_id"], item["name"], json.loads(item["arguments"]))
            for item in items
            if item["type"] == "function_call"
        )
        return Heard(reasoning, "".join(texts), calls, tuple(items))

    def is_refusal(self, body: bytes) -> bool:
        error = json.loads(body).get("error", {})
        return {"message", "type"} <= set(error)

    def ends_cleanly(self, body: bytes) -> bool:
        return b"event: response.completed" in body or b"event: response.incomplete" in body

    def tells_error(self, body: bytes) -> bool:
        return data_of(body)[-1]["type"] == "response.failed"


class Anthropic:
    """Anthropic Messages."""

    name = "anthropic.messages"
    keeps_items = True
    keep_alive = b"event: ping"

    def url(self, handle: Any, stream: bool) -> str:
        return f"{handle.anthropic_base_url}/v1/messages"

    def body(self, *history: Any, stream: bool = False, **fields: Any) -> bytes:
        messages: list[dict[str, Any]] = []
        for said in history:
            match said:
                case Heard():
                    if said.echo:
                        messages.append({"role": "assistant", "content": list(said.echo)})
                case Result():
                    block = {"type": "tool_result", "tool_use_id": said.call.call_id, "content": said.text}
                    messages.append({"role": "user", "content": [block]})
                case System():
                    fields["system"] = in_blocks(said, "text")
                case _:
                    messages.append({"role": "user", "content": said})
        tool = {"name": "ls", "input_schema": LS}
        asked = {"model": "m", "max_tokens": 400, "messages": messages, "tools": [tool], "stream": stream}
        return json.dumps({**asked, "thinking": {"type": "adaptive"}, **fields}).encode()

    def heard(self, body: bytes, stream: bool) -> Heard:
        blocks = self._finished(data_of(body)) if stream else json.loads(body)["content"]
        reasoning = "".join(block["thinking"] for block in blocks if block["type"] == "thinking")
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        calls = tuple(
            Called(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"
        )
        return Heard(reasoning, text, calls, tuple(blocks))

    def _finished(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        written, stopped = "", 0
        for event in events:
            match event["type"]:
                case "content_block_start":
                    blocks.append(dict(event["content_block"]))
                    written = ""
                case "content_block_delta":
                    for name, piece in event["delta"].items():
                        if name == "partial_json":
                            written += piece
                        elif name != "type":
                            blocks[-1][name] = blocks[-1].get(name, "") + piece
                case "content_block_stop":
                    stopped = len(blocks)
                    if blocks[-1]["type"] == "tool_use":
                        blocks[-1]["input"] = json.loads(written or "{}")
        return blocks[:stopped]

    def is_refusal(self, body: bytes) -> bool:
        said = json.loads(body)
        return said.get("type") == "error" and {"message", "type"} <= set(said["error"])

    def ends_cleanly(self, body: bytes) -> bool:
        return b"event: message_stop" in body or b"event: message_delta" in body

    def tells_error(self, body: bytes) -> bool:
        return data_of(body)[-1]["type"] == "error"


class Gemini:
    """Google's generateContent."""

    name = "google.gemini"
    keeps_items = True
    keep_alive = b"\n"

    def url(self, handle: Any, stream: bool) -> str:
        base = handle.openai_base_url.removesuffix("/v1")
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"{base}/v1beta/models/m:{verb}"

    def body(self, *history: Any, stream: bool = False, **fields: Any) -> bytes:
        contents: list[dict[str, Any]] = []
        head: dict[str, Any] = {}
        for said in history:
            match said:
                case Heard():
                    if said.echo:
                        contents.append({"role": "model", "parts": list(said.echo)})
                case Result():
                    response = {"name": said.call.name, "id": said.call.call_id, "response": {"output": said.text}}
                    contents.append({"role": "user", "parts": [{"functionResponse": response}]})
                case System():
                    head["systemInstruction"] = {"parts": [{"text": text} for text in said.texts]}
                case _:
                    contents.append({"role": "user", "parts": [{"text": said}]})
        tool = {"functionDeclarations": [{"name": "ls", "parametersJsonSchema": LS}]}
        head["tools"] = fields.pop("tools", [tool])
        config = {"thinkingConfig": {"includeThoughts": True}, **fields}
        return json.dumps({"contents": contents, **head, "generationConfig": config}).encode()

    def heard(self, body: bytes, stream: bool) -> Heard:
        answers = data_of(body) if stream else [json.loads(body)]
        parts = [
            part
            for answer in answers
            for candidate in answer.get("candidates", [])
            for part in candidate["content"]["parts"]
            if part.get("text") != ""
        ]
        reasoning = "".join(part["text"] for part in parts if part.get("thought"))
        text = "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))
        called = [part["functionCall"] for part in parts if "functionCall" in part]
        calls = tuple(Called(each["id"], each["name"], each["args"]) for each in called)
        return Heard(reasoning, text, calls, tuple(parts))

    def is_refusal(self, body: bytes) -> bool:
        error = json.loads(body).get("error", {})
        return {"code", "message", "status"} <= set(error)

    def ends_cleanly(self, body: bytes) -> bool:
        return b'"finishReason"' in body

    def tells_error(self, body: bytes) -> bool:
        """Its clients take an error event for an end: the connection breaks off instead."""
        return True


SPEAKERS = {speaker.name: speaker for speaker in (Chat(), Responses(), Anthropic(), Gemini())}


class Told(msgspec.Struct, frozen=True):
    """What a client was answered, and what the engine was asked for it."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_broken: bool
    """Whether the connection ended in the middle of the body."""
    prompt: list[int]
    """Ids of the engine's first request for it; empty: the engine heard nothing."""
    prompts: int
    """How many new prompts the engine was given."""

    @property
    def history(self) -> str:
        return self.headers.get("x-turnstile-history", "")

    @property
    def call_id(self) -> str:
        return self.headers.get("x-turnstile-call", "")

    @property
    def is_stream(self) -> bool:
        return self.headers["content-type"].startswith("text/event-stream")


class Talker:
    """An agent that speaks one dialect."""

    def __init__(self, room: Any, speaker: Any, agent: Any) -> None:
        self.room = room
        self.speaker = speaker
        self.agent = agent

    def say(self, *history: Any, stream: bool = True, headers: dict[str, str] | None = None, **fields: Any) -> Told:
        return self.send(self.speaker.body(*history, stream=stream, **fields), stream, headers)

    def send(self, body: bytes, stream: bool, headers: dict[str, str] | None = None) -> Told:
        """Send any bytes, and read as far as there is something to read."""
        fake, handle = self.room.fake, self.agent.handle
        keyed = {"authorization": f"Bearer {handle.agent_key}", "content-type": "application/json"}
        before, began = len(fake.requests), fake.begun
        heard, is_broken = b"", False
        url = self.speaker.url(handle, stream)
        with self.room.http.stream("POST", url, content=body, headers={**keyed, **(headers or {})}) as answer:
            try:
                for piece in answer.iter_raw():
                    heard += piece
            except httpx.RemoteProtocolError:
                is_broken = True
        asked = fake.requests[before:]
        prompt = asked[0]["prompt"] if asked else []
        return Told(answer.status_code, dict(answer.headers), heard, is_broken, prompt, fake.begun - began)

    def heard(self, told: Told) -> Heard:
        return self.speaker.heard(told.body, told.is_stream)

    def broke_off(self, told: Told) -> bool:
        """Whether a stream ended as one that failed: with the dialect's error event, or in mid connection."""
        tells = told.is_broken or self.speaker.tells_error(told.body)
        return tells and not self.speaker.ends_cleanly(told.body)

    @contextmanager
    def calling(
        self, *history: Any, stream: bool = True, headers: dict[str, str] | None = None, **fields: Any
    ) -> Generator[socket.socket]:
        """A request on a bare socket; leaving the block resets the connection."""
        self.agent.path = self.speaker.url(self.agent.handle, stream)
        with self.agent.calling(self.speaker.body(*history, stream=stream, **fields), headers) as line:
            yield line

    @property
    def calls(self) -> list[Any]:
        """What the journal says of each call, in order of start."""
        return list(self.room.forest(self.agent).calls.values())


def broken_behind(room: Any, fakes: Any, ids: list[int], behind: int, fault: str = "HALF_BODY") -> None:
    """The next answer is these ids, and breaks off in the first request behind that many of them."""
    room.fake.script(ids)
    sizes = itertools.chain((2, 16), itertools.repeat(48))
    good = next(count for count, sampled in enumerate(itertools.accumulate(sizes), 1) if sampled >= behind)
    room.fake.slow_s = 0.0
    room.fake.faults.extend([fakes.Fault.SLOW] * good + [fakes.Fault[fault]])
