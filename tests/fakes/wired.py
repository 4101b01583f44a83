"""A whole Turnstile whose engine is the wire fake: HTTP in, HTTP out, real tokenizers and templates in between."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Generator
from collections.abc import Sequence as Listing
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from turnstile.client import Client, RolloutHandle
from turnstile.history.forest import Forest
from turnstile.store import Reader
from turnstile.templates.tokenizer import Tokenizer
from turnstile.tokens import IdRun
from turnstile.trajectory.files import read, write
from turnstile.trajectory.format import Rollout, Sequence
from turnstile.trajectory.validate import validate_file

PATIENCE_S = 60.0


class Rows(Listing[bytes]):
    """The bytes of each id of a tokenizer, found when they are asked for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __len__(self) -> int:
        return self._tokenizer.size

    def __getitem__(self, token_id: Any) -> Any:
        return self._tokenizer.token_bytes(token_id)


class Said(msgspec.Struct, frozen=True):
    """What an agent was answered, and what the engine was asked for it."""

    status: int
    headers: dict[str, str]
    body: bytes
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

    @property
    def events(self) -> list[dict[str, Any]]:
        """The chunks of a stream, without the end mark."""
        lines = (line.removeprefix("data: ") for line in self.body.decode().split("\n") if line.startswith("data: "))
        return [json.loads(line) for line in lines if line != "[DONE]"]

    @property
    def ended(self) -> bool:
        """Whether a stream ends in its end mark."""
        return self.body.endswith(b"data: [DONE]\n\n")

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return (self.events[-1] if self.is_stream else self.json)["error"]

    @property
    def message(self) -> dict[str, Any]:
        """The first choice's message as a client puts it into its history; a stream's pieces are added up."""
        if not self.is_stream:
            said = self.json["choices"][0]["message"]
        else:
            said = {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": []}
            for event in self.events:
                for choice in event.get("choices", []):
                    _gain(said, choice["delta"])
        return {name: value for name, value in said.items() if value not in (None, "", [])}

    @property
    def text(self) -> str:
        return self.message.get("content", "")

    @property
    def finish_reason(self) -> str:
        choices = self.events[-1]["choices"] if self.is_stream else self.json["choices"]
        return choices[0]["finish_reason"]


def _gain(said: dict[str, Any], delta: dict[str, Any]) -> None:
    for name in ("content", "reasoning_content"):
        said[name] += delta.get(name) or ""
    for piece in delta.get("tool_calls", []):
        if piece["index"] == len(said["tool_calls"]):
            said["tool_calls"].append(
                {"id": piece["id"], "type": "function", "function": {"name": "", "arguments": ""}}
            )
        function = said["tool_calls"][piece["index"]]["function"]
        for name in ("name", "arguments"):
            function[name] += piece["function"].get(name) or ""


class Agent:
    """An ordinary HTTP client on one rollout."""

    def __init__(self, wired: Wired, handle: RolloutHandle, http: httpx.Client) -> None:
        self._wired = wired
        self._http = http
        self.handle = handle
        self.path = f"{handle.openai_base_url}/chat/completions"

    def post(self, body: bytes, headers: dict[str, str] | None = None) -> Said:
        """Send any bytes."""
        keyed = {"authorization": f"Bearer {self.handle.agent_key}", "content-type": "application/json"}
        fake = self._wired.fake
        before = len(fake.requests)
        began = fake.begun
        answer = self._http.post(self.path, content=body, headers={**keyed, **(headers or {})})
        heard = fake.requests[before:]
        prompt = heard[0]["prompt"] if heard else []
        return Said(answer.status_code, dict(answer.headers), answer.content, prompt, fake.begun - began)

    def say(self, *messages: dict[str, Any] | str, headers: dict[str, str] | None = None, **fields: Any) -> Said:
        """Ask for the next message; a bare text is a user message."""
        return self.post(self.body(*messages, **fields), headers)

    def body(self, *messages: dict[str, Any] | str, **fields: Any) -> bytes:
        sent = [user(each) if isinstance(each, str) else each for each in messages]
        return json.dumps({"model": "m", "messages": sent, **fields}).encode()

    @contextmanager
    def calling(
        self, body: bytes, headers: dict[str, str] | None = None, missing_bytes: int = 0
    ) -> Generator[socket.socket]:
        """A request on a bare socket, sent and not answered yet; leaving the block resets the connection."""
        url = urlsplit(self.path)
        length = len(body) + missing_bytes
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = (
            f"POST {url.path}?{url.query} HTTP/1.1\r\nhost: {url.netloc}\r\ncontent-type: application/json\r\n"
            f"authorization: Bearer {self.handle.agent_key}\r\n{more}content-length: {length}\r\n\r\n"
        )
        with socket.create_connection((url.hostname, url.port), timeout=PATIENCE_S) as line:
            line.sendall(head.encode() + body)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            yield line

    @property
    def summary(self) -> dict[str, Any]:
        """GET /rollouts/ID."""
        return self._wired.get(f"/rollouts/{self.handle.rollout_id}")

    def exported(self, folder: Path) -> Rollout:
        """The trajectory so far, written to a file, found to be without fault, and read back."""
        file = folder / f"{self.handle.rollout_id}.jsonl"
        write(file, [self.handle.trajectory()])
        assert [str(found) for found in validate_file(file) if found.code.startswith("E")] == []
        (rollout,) = read(file)
        return rollout


class Wired:
    """A running Turnstile, the fake behind it, and its tokenizer."""

    def __init__(self, client: Client, fake: Any, tokenizer: Tokenizer, store: Path, engine: ExitStack) -> None:
        self.client = client
        self._engine = engine
        self.store = store
        self.fake = fake
        self.tokenizer = tokenizer
        self.http = httpx.Client(timeout=PATIENCE_S, trust_env=False)

    def ids(self, text: str) -> list[int]:
        """A text's ids; the text of a control token is that token."""
        return self.tokenizer.encode(text).tolist()

    def text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(IdRun.of(ids))

    def id_of(self, text: str) -> int:
        found = self.tokenizer.id_of(text)
        assert found is not None, text
        return found

    def script(self, *answers: str | list[int]) -> list[list[int]]:
        """What the engine samples next, as ids or as text that ends in a stop token."""
        scripted = [self.ids(each) if isinstance(each, str) else each for each in answers]
        self.fake.script(*scripted)
        return scripted

    def agent(self, **opening: Any) -> Agent:
        return Agent(self, self.client.rollout(**opening), self.http)

    @contextmanager
    def engine_down(self) -> Generator[None]:
        """Nothing listens at the engine's address until the block is left."""
        port = self.fake.port
        self._engine.close()
        yield
        self._engine.enter_context(self.fake.in_thread(port))

    def forest(self, agent: Agent) -> Forest:
        return forest(self.store, agent.handle.rollout_id)

    def get(self, path: str) -> dict[str, Any]:
        return json.loads(self.client.get(path))


def forest(store: Path, rollout_id: str) -> Forest:
    """What the journal says of a rollout."""
    with Reader.open(store) as reader:
        return Forest.of(reader.records(rollout_id))


def sampled(sequence: Sequence, trainable: bool = True) -> list[list[int]]:
    """The ids of each sampled stretch of a sequence that is, or is not, trainable."""
    ids = sequence.token_ids.tolist()
    return [ids[part.start : part.end] for part, _ in sequence.sampled_segments() if part.trainable is trainable]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def tool_result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def tool(name: str, **properties: str) -> dict[str, Any]:
    """A tool whose parameters are named with their JSON types."""
    schema = {"type": "object", "properties": {each: {"type": kind} for each, kind in properties.items()}}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def troubles(health: dict[str, Any]) -> list[str]:
    """Why a server is degraded, but for its event loop, which a busy machine makes late."""
    return [reason for reason in health["reasons"] if not reason.startswith("The event loop was ")]


def eventually(holds: Callable[[], object]) -> None:
    """Wait for something that another thread or process does; fails after a while."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
