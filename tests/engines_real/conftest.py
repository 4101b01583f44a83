"""A whole Turnstile over each real engine with the same tiny weights, and agents of every dialect's own SDK."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from anthropic import Anthropic
from google import genai
from google.genai import types
from openai import OpenAI

from turnstile.client import Client, RolloutHandle
from turnstile.config import Settings
from turnstile.engines.smollm import say_nothing
from turnstile.server.local import serving

PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
LIMIT = 200
"""Tokens of one answer."""
PATIENCE_S = 300.0


class Said(msgspec.Struct, frozen=True):
    """One answer of the model as its client has it."""

    text: str
    cities: tuple[str, ...]
    """What each call of the tool asks for."""
    arrivals_s: tuple[float, ...]
    """When each piece of text or of a call arrived, since the request."""
    took_s: float


class Agent:
    """What agents of all dialects have in common."""

    def __init__(self) -> None:
        self.arrivals_s: list[float] = []
        """Of the answer that is coming, or came last."""
        self._began = 0.0

    def _begin(self) -> None:
        self._began = time.monotonic()
        self.arrivals_s = []

    def _arrived(self) -> None:
        self.arrivals_s.append(time.monotonic() - self._began)

    def _said(self, text: str, cities: tuple[str, ...]) -> Said:
        return Said(text, cities, tuple(self.arrivals_s), time.monotonic() - self._began)


class ChatAgent(Agent):
    """The OpenAI SDK's chat completions."""

    name = "chat"

    def __init__(self, handle: RolloutHandle, stack: ExitStack, retries: int = 0) -> None:
        super().__init__()
        self._client = stack.enter_context(
            OpenAI(base_url=handle.openai_base_url, api_key=handle.agent_key, max_retries=retries, timeout=PATIENCE_S)
        )
        self._history: list[Any] = []
        function = {"name": "get_weather", "description": "Current weather.", "parameters": PARAMETERS}
        self._tools: list[Any] = [{"type": "function", "function": function}]
        self._calls: list[str] = []

    def user(self, text: str) -> None:
        self._history.append({"role": "user", "content": text})

    def results(self, texts: list[str]) -> None:
        for call_id, text in zip(self._calls, texts, strict=True):
            self._history.append({"role": "tool", "tool_call_id": call_id, "content": text})

    def turn(self, tools: bool = True, limit: int = LIMIT) -> Said:
        self._begin()
        message: dict[str, Any] = {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": []}
        stream = self._client.chat.completions.create(
            model="tiny",
            messages=self._history,
            stream=True,
            temperature=0.0,
            max_tokens=limit,
            **({"tools": self._tools} if tools else {}),
        )
        for chunk in stream:
            for choice in chunk.choices:
                if _gain(message, choice.delta.model_dump()):
                    self._arrived()
        self._history.append({name: value for name, value in message.items() if value})
        self._calls = [call["id"] for call in message["tool_calls"]]
        cities = [json.loads(call["function"]["arguments"])["city"] for call in message["tool_calls"]]
        return self._said(message["content"], tuple(cities))


def _gain(message: dict[str, Any], delta: dict[str, Any]) -> bool:
    gained = False
    for name in ("content", "reasoning_content"):
        message[name] += delta.get(name) or ""
        gained |= bool(delta.get(name))
    for piece in delta.get("tool_calls") or []:
        gained = True
        if piece["index"] == len(message["tool_calls"]):
            function = {"name": piece["function"]["name"], "arguments": ""}
            message["tool_calls"].append({"id": piece["id"], "type": "function", "function": function})
        message["tool_calls"][piece["index"]]["function"]["arguments"] += piece["function"].get("arguments") or ""
    return gained


class MessagesAgent(Agent):
    """The Anthropic SDK's messages."""

    name = "messages"

    def __init__(self, handle: RolloutHandle, stack: ExitStack, retries: int = 0) -> None:
        super().__init__()
        self._client = stack.enter_context(
            Anthropic(
                base_url=handle.anthropic_base_url, api_key=handle.agent_key, max_retries=retries, timeout=PATIENCE_S
            )
        )
        self._history: list[Any] = []
        self._tools: list[Any] = [
            {"name": "get_weather", "description": "Current weather.", "input_schema": PARAMETERS}
        ]
        self._calls: list[str] = []

    def user(self, text: str) -> None:
        self._history.append({"role": "user", "content": text})

    def results(self, texts: list[str]) -> None:
        blocks = [
            {"type": "tool_result", "tool_use_id": call_id, "content": text}
            for call_id, text in zip(self._calls, texts, strict=True)
        ]
        self._history.append({"role": "user", "content": blocks})

    def turn(self, tools: bool = True, limit: int = LIMIT) -> Said:
        self._begin()
        # The SDK has no temperature any more.
        sampling = {"extra_body": {"temperature": 0.0}}
        asked: dict[str, Any] = {"model": "tiny", "max_tokens": limit, "messages": self._history, **sampling}
        with self._client.messages.stream(**asked, **({"tools": self._tools} if tools else {})) as stream:
            for event in stream:
                if event.type == "content_block_delta":
                    self._arrived()
            final = stream.get_final_message()
        self._history.append(final.to_param())
        uses = [block for block in final.content if block.type == "tool_use"]
        self._calls = [use.id for use in uses]
        text = "".join(block.text for block in final.content if block.type == "text")
        cities = tuple(str(use.input["city"]) for use in uses)
        return self._said(text, cities)


class ResponseFailed(Exception):
    """The stream ended with `response.failed`, for which the SDK has no exception."""


class ResponsesAgent(Agent):
    """The OpenAI SDK's responses."""

    name = "responses"

    def __init__(self, handle: RolloutHandle, stack: ExitStack, retries: int = 0) -> None:
        super().__init__()
        self._client = stack.enter_context(
            OpenAI(base_url=handle.openai_base_url, api_key=handle.agent_key, max_retries=retries, timeout=PATIENCE_S)
        )
        self._history: list[Any] = []
        named = {"name": "get_weather", "description": "Current weather.", "strict": False}
        self._tools: list[Any] = [{"type": "function", **named, "parameters": PARAMETERS}]
        self._calls: list[str] = []

    def user(self, text: str) -> None:
        self._history.append({"role": "user", "content": text})

    def results(self, texts: list[str]) -> None:
        for call_id, text in zip(self._calls, texts, strict=True):
            self._history.append({"type": "function_call_output", "call_id": call_id, "output": text})

    def turn(self, tools: bool = True, limit: int = LIMIT) -> Said:
        self._begin()
        asked: dict[str, Any] = {"model": "tiny", "input": self._history, "max_output_tokens": limit}
        with self._client.responses.stream(
            **asked, temperature=0.0, **({"tools": self._tools} if tools else {})
        ) as stream:
            for event in stream:
                if event.type.endswith(".delta"):
                    self._arrived()
                elif event.type in ("response.completed", "response.incomplete"):
                    final = event.response
                elif event.type == "response.failed":
                    raise ResponseFailed(event.response.error and event.response.error.message)
        self._history += final.output
        calls = [item for item in final.output if item.type == "function_call"]
        self._calls = [call.call_id for call in calls]
        cities = tuple(json.loads(call.arguments)["city"] for call in calls)
        return self._said(final.output_text, cities)


class GeminiAgent(Agent):
    """Google's SDK."""

    name = "gemini"

    def __init__(self, handle: RolloutHandle, stack: ExitStack, retries: int = 0) -> None:
        super().__init__()
        again = types.HttpRetryOptions(attempts=retries + 1)
        options = types.HttpOptions(base_url=handle.base_url, retry_options=again, timeout=int(PATIENCE_S * 1000))
        self._client = genai.Client(api_key=handle.agent_key, http_options=options)
        stack.callback(self._client.close)
        self._history: list[Any] = []
        named = {"name": "get_weather", "description": "Current weather."}
        self._tools: list[Any] = [{"function_declarations": [{**named, "parameters_json_schema": PARAMETERS}]}]
        self._calls: list[tuple[str | None, str | None]] = []

    def user(self, text: str) -> None:
        self._history.append(types.UserContent(text))

    def results(self, texts: list[str]) -> None:
        # A response is an object here; the model knows results as text and as objects like this one.
        parts = [
            types.Part(function_response=types.FunctionResponse(id=call_id, name=name, response=_as_object(text)))
            for (call_id, name), text in zip(self._calls, texts, strict=True)
        ]
        self._history.append(types.Content(role="user", parts=parts))

    def turn(self, tools: bool = True, limit: int = LIMIT) -> Said:
        self._begin()
        parts: list[types.Part] = []
        config: dict[str, Any] = {"temperature": 0.0, "max_output_tokens": limit}
        config |= {"tools": self._tools, "automatic_function_calling": {"disable": True}} if tools else {}
        for chunk in self._client.models.generate_content_stream(model="tiny", contents=self._history, config=config):  # type: ignore[arg-type]
            for candidate in chunk.candidates or []:
                found = (candidate.content and candidate.content.parts) or []
                if found:
                    self._arrived()
                parts += found
        self._history.append(types.Content(role="model", parts=parts))
        calls = [part.function_call for part in parts if part.function_call]
        self._calls = [(call.id, call.name) for call in calls]
        text = "".join(part.text for part in parts if part.text and not part.thought)
        cities = tuple(str((call.args or {})["city"]) for call in calls)
        return self._said(text, cities)


def _as_object(text: str) -> dict[str, Any]:
    city, _, weather = text.partition(": ")
    return {city: weather.partition(",")[0]}


AGENTS: dict[str, Any] = {each.name: each for each in (ChatAgent, MessagesAgent, ResponsesAgent, GeminiAgent)}


@pytest.fixture(scope="session")
def turnstile_over(
    tiny_folder: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Client]]:
    """A Turnstile over `vLLM` or `llama.cpp`, each started once."""
    with ExitStack() as stack:

        @cache
        def over(name: str) -> Client:
            engine = request.getfixturevalue({"vLLM": "real_vllm", "llama.cpp": "real_llamacpp"}[name])
            settings = Settings(
                engine=engine.url,
                engine_api_key=engine.KEY,
                model="tiny",
                tokenizer=tiny_folder,
                store=tmp_path_factory.mktemp("store"),
                port=0,
            )
            return stack.enter_context(serving(settings, say_nothing))

        yield over


@pytest.fixture
def agent_of() -> Callable[..., Any]:
    """An agent of a dialect on a rollout of a server: a context manager that gives both."""

    @contextmanager
    def agent_of(client: Client, dialect: str) -> Generator[tuple[Any, RolloutHandle]]:
        with ExitStack() as stack, client.rollout() as handle:
            yield AGENTS[dialect](handle, stack), handle

    return agent_of


@pytest.fixture(scope="session")
def real_agents() -> dict[str, Any]:
    """The agents by dialect, and what one raises where its SDK raises nothing."""
    return {**AGENTS, "failed": ResponseFailed}


@pytest.fixture(scope="session")
def killable_vllm(real_engines: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A vLLM that may be killed, and is started again."""
    with ExitStack() as stack:
        if os.environ.get("TURNSTILE_VLLM"):
            server = real_engines.Vllm()
            stack.callback(server.kill)
        else:
            server = request.getfixturevalue("real_vllm")
        yield server


class Tap:
    """Stands between Turnstile and an engine, passes bytes on as they come, and remembers the engine's."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._target = (target.hostname or "", target.port or 0)
        self.heard = bytearray()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    engine = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                for source, sink, heard in ((client, engine, bytearray()), (engine, client, self.heard)):
                    threading.Thread(target=self._pump, args=(source, sink, heard), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, heard: bytearray) -> None:
        with source, suppress(OSError):
            while data := source.recv(1 << 16):
                heard += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def tap() -> Iterator[Callable[[str], Tap]]:
    """Puts a tap before an engine's address."""
    with ExitStack() as stack:

        def tap(url: str) -> Tap:
            found = Tap(url)
            stack.callback(found.close)
            return found

        yield tap


@pytest.fixture
def start_turnstile(tiny_folder: Path, tmp_path: Path) -> Iterator[Callable[..., tuple[Client, Path]]]:
    """Starts a Turnstile of its own over an address; the client, and where the store is."""
    with ExitStack() as stack:

        def start(url: str, **changes: Any) -> tuple[Client, Path]:
            settings = Settings(engine=url, model="tiny", tokenizer=tiny_folder, store=tmp_path / "store", port=0)
            settings = msgspec.structs.replace(settings, **changes)
            return stack.enter_context(serving(settings, say_nothing)), settings.store

        yield start
