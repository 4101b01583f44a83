"""A token server made of nothing but its wire (docs/reference/engine-wire.md), which can be made to go wrong.

It imports nothing of Turnstile. Import it by its name, with this folder in `sys.path`.

    fake = TokenServerFake(token_bytes=[...], special={0, 1}, eos={1})
    fake.script([5, 6, 7, 1])                    # the next streamed request is answered with these ids
    fake.faults.append(Fault.CUT)                # the next streamed request goes wrong; one entry a request
    async with fake.serving() as url: ...        # in this event loop
    with fake.in_thread() as url: ...            # or beside the caller
    fake.requests                                # bodies of all streamed requests, decoded

Every place has the same made-up distribution: the logit of id i is `logit(i)`, so each log-probability is known.
"""

from __future__ import annotations

import asyncio
import base64
import enum
import hashlib
import json
import math
import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from fake_server import FakeServer, cut


class Fault(enum.Enum):
    """What may go wrong with one streamed `/generate`."""

    HANG = enum.auto()
    RESET = enum.auto()
    """The connection is cut before a byte was sent."""
    CUT = enum.auto()
    """Two events with ids, then the connection is cut."""
    CUT_CLEAN = enum.auto()
    """Two events with ids, then a body that ends as it should."""
    CLOSED = enum.auto()
    """A good answer, then the connection is closed."""
    ERROR_500 = enum.auto()
    BUSY = enum.auto()
    ERROR_EVENT = enum.auto()
    """Two events with ids, then an error in a stream whose status was 200."""
    HTML = enum.auto()
    NOT_JSON = enum.auto()
    OTHER_PROMPT = enum.auto()
    """It ran other ids."""
    TRUNCATED = enum.auto()
    """It ran fewer ids, and says only how many."""
    NO_ECHO = enum.auto()
    WRONG_COUNT = enum.auto()
    NO_IDS = enum.auto()
    """Numbers and an end, and no ids."""
    LOST_IDS = enum.auto()
    """The ids of one event did not come."""
    FOREIGN_ID = enum.auto()
    NO_LOGPROBS = enum.auto()
    FOREIGN_LOGPROBS = enum.auto()
    """One number too many in each event: nobody knows whose each one is."""
    NULL_LOGPROBS = enum.auto()
    CLAMPED = enum.auto()
    ALL_ZERO = enum.auto()
    POSITIVE = enum.auto()
    NAN_LITERAL = enum.auto()
    STOP_ID_LOST = enum.auto()
    UNKNOWN_FINISH = enum.auto()
    ABORTED = enum.auto()
    NO_FINISH = enum.auto()
    GAP_IN_SPANS = enum.auto()
    """Ids whose weights are not told, between others."""
    STOPS_AT_NOTHING = enum.auto()
    """It samples on behind a stop id."""


@dataclass
class TokenServerFake(FakeServer):
    """See the module."""

    tokenizer_sha256: str = "0" * 64
    info: dict[str, Any] = field(default_factory=dict)
    """Further members of `/info`, over its own."""
    streams: bool = True
    """Whether it can; else each answer is one JSON object."""
    echo: str = "prompt_sha256"
    """What says which prompt ran: `prompt_sha256`, `prompt_ids` or `prompt_tokens`."""
    mode: str = "temperature"
    """What its numbers are of: `temperature`, `raw` or `processed`."""
    told_mode: str = ""
    """What it says that they are; empty: the truth."""
    trims_stop_ids: bool = False
    placeholder_id: int | None = None
    image_tokens: Callable[[bytes], int] = lambda data: 2 + len(data) % 5
    weight_version: str | int | None = "0"
    updates: dict[int, str | int] = field(default_factory=dict)
    """In the next request, the version of the weights from an output index on."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    probes: list[dict[str, Any]] = field(default_factory=list)
    gone: int = 0
    """Requests whose client went away before the answer's end."""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 26, middlewares=[self._keyed])
        app.router.add_get("/health", self._health)
        app.router.add_get("/info", self._info)
        app.router.add_post("/generate", self._generate)
        return app

    @web.middleware
    async def _keyed(self, request: web.Request, handler: Any) -> web.StreamResponse:
        is_open = not self.api_key or request.path == "/health"
        if not is_open and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return _error(401, "unauthorized", "no such key")
        return await handler(request)

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _info(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "protocol": "turnstile.engine/1",
                "tokenizer_sha256": self.tokenizer_sha256,
                "vocab_size": len(self.token_bytes),
                "model": self.model,
                "engine": "fake",
                "version": "1",
                "weight_version": "" if self.weight_version is None else self.weight_version,
                "context_length": self.context,
                "concurrency": 8,
                "stop_ids": sorted(self.eos),
                "honours": ["seed", "top_p", "logit_bias"],
                "images": None if self.placeholder_id is None else {"placeholder_id": self.placeholder_id},
            }
            | self.info
        )

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        if not body["stream"]:
            self.probes.append(body)
            run = _Run(self, body, self.ranked(1), None)
            return web.json_response(run.whole())
        self.requests.append(body)
        fault = self.faults.popleft() if self.faults else None
        if (refused := await self._refused(request, body, fault)) is not None:
            return refused
        run = _Run(self, body, self.next_answer(body["input_ids"]), fault)
        if not self.streams:
            return web.json_response(run.whole())
        try:
            return await self._streamed(request, run)
        except (asyncio.CancelledError, ConnectionResetError):
            self.gone += 1
            raise

    async def _refused(
        self, request: web.Request, body: dict[str, Any], fault: Fault | None
    ) -> web.StreamResponse | None:
        match fault:
            case Fault.HANG:
                await asyncio.Event().wait()
            case Fault.RESET:
                cut(request)
                return web.Response()
            case Fault.ERROR_500:
                return web.Response(status=500, text="Internal Server Error")
            case Fault.BUSY:
                return _error(503, "busy", "too many requests wait")
            case Fault.HTML:
                return web.Response(text="<html>It works</html>", content_type="text/html")
            case _:
                pass
        ids = body["input_ids"]
        if not all(0 <= each < len(self.token_bytes) for each in ids):
            return _error(400, "invalid_request", "`input_ids` has a foreign id")
        if len(ids) >= self.context:
            return _error(400, "context_length_exceeded", f"{len(ids)} tokens, and the context holds {self.context}")
        return None

    async def _streamed(self, request: web.Request, run: _Run) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await stream.prepare(request)
        if run.fault is Fault.NOT_JSON:
            await stream.write(b"data: {oops\n\n")
            return stream
        await _send(stream, run.head())
        for sent, event in enumerate(run.events(), 1):
            await self.pace()
            await _send(stream, event)
            if sent == 2 and run.fault is Fault.CUT:
                cut(request)
                return stream
            if sent == 2 and run.fault is Fault.CUT_CLEAN:
                return stream
            if sent == 2 and run.fault is Fault.ERROR_EVENT:
                await _send(stream, {"error": {"code": "engine_failed", "message": "the model fell over"}})
                return stream
        if run.fault is Fault.CLOSED:
            stream.force_close()
        return stream


class _Run:
    """One answer."""

    def __init__(self, fake: TokenServerFake, body: dict[str, Any], ids: list[int], fault: Fault | None) -> None:
        self.fake = fake
        self.fault = fault
        self._body = body
        self._script = ids
        self._updates = dict(fake.updates)
        fake.updates.clear()
        self._ranges: list[list[int]] = []
        self._prompt = self._prepared()

    def head(self) -> dict[str, Any]:
        """What is said of the prompt."""
        ids = list(self._prompt)
        if self.fault is Fault.OTHER_PROMPT:
            ids[-1] = 0 if ids[-1] else 1
        if self.fault is Fault.TRUNCATED:
            return {"prompt_tokens": len(ids) - 1}
        temperature = self._body["temperature"]
        if self.fault is Fault.NO_ECHO:
            said: dict[str, Any] = {}
        else:
            said = {"prompt_tokens": len(ids)}
            if self.fake.echo == "prompt_sha256":
                said["prompt_sha256"] = hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()
            if self.fake.echo == "prompt_ids" or self._ranges:
                said |= {"prompt_ids": ids, "image_ranges": self._ranges}
        mode = self.fake.told_mode or self.fake.mode
        is_divided = temperature > 0 and mode != "raw"
        return said | {
            "logprobs_mode": mode if is_divided or mode == "unknown" else "raw",
            "logprobs_temperature": temperature if is_divided else 1.0,
        }

    def events(self) -> Generator[dict[str, Any]]:
        """Each event with ids, the last one with how it ended; `fault` is done to them."""
        count, version = 0, self.fake.weight_version
        finish = ""
        while not finish:
            token = self._script[min(count, len(self._script) - 1)]
            version = self._updates.get(count, version)
            count += 1
            finish = self._finish(token, count)
            event: dict[str, Any] = {"output_ids": [token], "logprobs": [self._number(token)]}
            if version is not None:
                event["weight_version"] = version
            if finish:
                event |= {"finish_reason": finish, "completion_tokens": count}
            yield self._spoiled(event, count)
            if self.fault is Fault.NO_FINISH and finish:
                return
        self.fake.weight_version = version

    def whole(self) -> dict[str, Any]:
        """The answer in one piece."""
        events = list(self.events())
        spans: list[dict[str, Any]] = []
        ids: list[int] = []
        for event in events:
            start = len(ids)
            ids += event["output_ids"]
            if "weight_version" in event:
                spans.append({"version": event["weight_version"], "start": start, "end": len(ids)})
        return {
            **self.head(),
            **{name: value for name, value in events[-1].items() if name in ("finish_reason", "completion_tokens")},
            "output_ids": ids,
            "logprobs": [each for event in events for each in event["logprobs"]],
            "weight_versions": spans,
        }

    def _prepared(self) -> list[int]:
        out: list[int] = []
        images = [base64.b64decode(each) for each in self._body.get("images", [])]
        for token in self._body["input_ids"]:
            if token == self.fake.placeholder_id and images:
                length = self.fake.image_tokens(images.pop(0))
                self._ranges.append([len(out), length])
                out += [token] * length
            else:
                out.append(token)
        return out

    def _finish(self, token: int, count: int) -> str:
        if self.fault is Fault.UNKNOWN_FINISH and count == 2:
            return "preempted"
        if self.fault is Fault.ABORTED and count == 2:
            return "abort"
        if token in self._body["stop_ids"] and self.fault is not Fault.STOPS_AT_NOTHING:
            return "stop"
        room = self.fake.context - len(self._prompt)
        limit = self._body["max_tokens"]
        return "length" if count >= (room if limit is None else min(limit, room)) else ""

    def _number(self, token: int) -> float | None:
        match self.fault:
            case Fault.NULL_LOGPROBS:
                return None
            case Fault.CLAMPED:
                return -9999.0
            case Fault.ALL_ZERO:
                return 0.0
            case Fault.POSITIVE:
                return 0.5
            case Fault.NAN_LITERAL:
                return math.nan
            case _:
                pass
        temperature = self._body["temperature"]
        if self.fake.mode == "processed" and self._body.get("top_p", 1.0) < 0.01 and temperature > 0:
            return 0.0
        return self.fake.logprob(token, temperature if self.fake.mode != "raw" and temperature > 0 else 1.0)

    def _spoiled(self, event: dict[str, Any], count: int) -> dict[str, Any]:
        is_last = "finish_reason" in event
        match self.fault:
            case Fault.WRONG_COUNT if is_last:
                event["completion_tokens"] += 1
            case Fault.NO_IDS:
                event["output_ids"] = []
            case Fault.LOST_IDS if count == 2:
                event["output_ids"], event["logprobs"] = [], []
            case Fault.FOREIGN_ID if count == 2:
                event["output_ids"] = [len(self.fake.token_bytes)]
            case Fault.NO_LOGPROBS:
                del event["logprobs"]
            case Fault.FOREIGN_LOGPROBS:
                event["logprobs"].append(-0.5)
            case Fault.NO_FINISH if is_last:
                del event["finish_reason"]
            case Fault.GAP_IN_SPANS if count == 2:
                del event["weight_version"]
            case _:
                pass
        if event.get("finish_reason") == "stop" and (self.fault is Fault.STOP_ID_LOST or self.fake.trims_stop_ids):
            event["output_ids"], event["logprobs"] = [], []
            event["completion_tokens"] -= 1
        return event


def _error(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"error": {"code": code, "message": message}}, status=status)


async def _send(stream: web.StreamResponse, event: dict[str, Any]) -> None:
    await stream.write(b"data: " + json.dumps(event).encode() + b"\n\n")
