"""An SGLang server made of nothing but its wire, written from the source of sglang 0.5.23, which was never run here.

Where each shape stands there: routes and errors in `srt/entrypoints/http_server.py`; events, cumulative and
incremental, and the event of an abort in `srt/managers/tokenizer_manager.py` (`_handle_batch_output`,
`_handle_abort_req`, `_coalesce_streaming_chunks`); when an event is sent in
`srt/managers/scheduler_components/output_streamer.py` (`accept`); how an answer ends in
`srt/managers/schedule_batch.py` (`update_finish_state`); the expansion of images in
`srt/multimodal/processors/base_processor.py`; spans of weights in `srt/utils/weight_versions.py`.

It imports nothing of Turnstile. Import it by its name, with this folder in `sys.path`.

    fake = SglangFake(token_bytes=[...], special={0, 1}, eos={1})
    fake.script([5, 6, 7, 1])                    # the next streamed request is answered with these ids
    fake.faults.append(Fault.CUT)                # the next streamed request goes wrong; one entry a request
    async with fake.serving() as url: ...        # in this event loop
    with fake.in_thread() as url: ...            # or beside the caller
    fake.requests                                # bodies of all streamed /generate requests, decoded
    fake.aborts                                  # rids that /abort_request named

Every place has the same made-up distribution: the logit of id i is `logit(i)`, so each log-probability is known.
"""

from __future__ import annotations

import asyncio
import base64
import enum
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from fake_server import FakeServer, cut

FLOAT32_MINIMUM = -3.4028234663852886e38


class Fault(enum.Enum):
    """What may go wrong with one streamed `/generate`."""

    HANG = enum.auto()
    RESET = enum.auto()
    """The connection is cut before a byte was sent."""
    CUT = enum.auto()
    """Two events, then the connection is cut."""
    CUT_CLEAN = enum.auto()
    """Two events, then a body that ends as it should."""
    ERROR_500 = enum.auto()
    BUSY = enum.auto()
    """The queue is full: an event that ends with an abort of status 503."""
    ERROR_EVENT = enum.auto()
    """Two events, then an error in a stream whose status was 200."""
    HTML = enum.auto()
    NOT_JSON = enum.auto()
    NO_STREAM = enum.auto()
    """One whole answer."""
    UPDATE = enum.auto()
    """The weights are updated behind two tokens, which aborts what runs."""
    UPDATE_IN_QUEUE = enum.auto()
    """The same for a request that waits: it is aborted before it ran again, behind two tokens."""
    UPDATE_JOINED = enum.auto()
    """The same, its last events joined into one because the reader was slow."""
    RETOKENIZED = enum.auto()
    """The prompt was decoded and tokenized again into other ids."""
    TRUNCATED = enum.auto()
    """`--allow-auto-truncate` cut the prompt in the scheduler, where the echo does not show it."""
    NO_ECHO = enum.auto()
    WRONG_COUNT = enum.auto()
    WRONG_LENGTH = enum.auto()
    """`output_token_logprobs_length` is one too many."""
    FOREIGN_ID = enum.auto()
    NO_LOGPROBS = enum.auto()
    SHORT_LOGPROBS = enum.auto()
    FOREIGN_LOGPROBS = enum.auto()
    """The entries belong to other tokens."""
    NOT_FINITE = enum.auto()
    """Not a number, which orjson writes as null."""
    CLAMPED = enum.auto()
    POSITIVE = enum.auto()
    NAN_HAPPENED = enum.auto()
    """The model gave no numbers: the last id is replaced by a stop id."""
    STOP_ID_LOST = enum.auto()
    FOREIGN_STOP = enum.auto()
    """A stop string that nobody sent."""
    UNKNOWN_FINISH = enum.auto()
    GAP_IN_SPANS = enum.auto()
    CHANGED_IDS = enum.auto()
    """A later event of a cumulative stream has another first id."""


_UPDATES = (Fault.UPDATE, Fault.UPDATE_IN_QUEUE, Fault.UPDATE_JOINED)


@dataclass
class SglangFake(FakeServer):
    """See the module."""

    admin_key: str = ""
    version: str = "0.5.23"
    incremental: bool = False
    original_logprobs: bool = False
    """SGLANG_RETURN_ORIGINAL_LOGPROB."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Further members of `/server_info`."""
    info: dict[str, Any] = field(default_factory=dict)
    """Further members of `/model_info`."""
    encode: Callable[[str], list[int]] | None = None
    """Its tokenizer, for `/v1/tokenize`."""
    render: Callable[[list[dict[str, str]]], str] = lambda messages: (
        "".join(f"{each['role']}: {each['content']}\n" for each in messages) + "assistant:"
    )
    """Its chat template."""
    placeholder_id: int | None = None
    image_tokens: Callable[[bytes], int] = lambda data: 2 + len(data) % 5
    weight_version: str = "default"
    updates: dict[int, str] = field(default_factory=dict)
    """In the next request, the version of the weights from an output index on."""
    trims_stop_ids: bool = False
    has_old_names: bool = False
    """`/get_model_info` and `/get_server_info` only, as before the names that 0.5.23 prefers."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    probes: list[dict[str, Any]] = field(default_factory=list)
    aborts: list[str] = field(default_factory=list)
    gone: int = 0
    """Requests whose client went away before the answer's end."""
    connections: set[Any] = field(default_factory=set)

    def forget(self) -> None:
        """Drop what was scripted, asked and aborted, and be quick and cumulative again."""
        for each in (self._scripted, self.faults, self.requests, self.probes, self.aborts, self.updates):
            each.clear()
        self.token_delay_s, self.held, self.incremental, self.answer, self.gone = 0.0, False, False, None, 0
        self.weight_version = "default"

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 26, middlewares=[self._keyed])
        app.router.add_get("/health", self._health)
        prefix = "/get_" if self.has_old_names else "/"
        app.router.add_get(f"{prefix}model_info", self._model_info)
        app.router.add_get(f"{prefix}server_info", self._server_info)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/tokenize", self._tokenize)
        app.router.add_post("/generate", self._generate)
        app.router.add_post("/abort_request", self._abort_request)
        app.router.add_post("/separate_reasoning", self._separate_reasoning)
        app.router.add_post("/parse_function_call", self._parse_function_call)
        return app

    @web.middleware
    async def _keyed(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.connections.add(request.transport)
        needed = self.admin_key if request.path == "/abort_request" and self.admin_key else self.api_key
        if needed and request.path != "/health" and request.headers.get("authorization") != f"Bearer {needed}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        return await handler(request)

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=200)

    async def _model_info(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "model_path": f"org/{self.model}",
                "served_model_name": self.model,
                "tokenizer_path": f"org/{self.model}",
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": self.weight_version,
                "has_image_understanding": self.placeholder_id is not None,
                "has_audio_understanding": False,
                "model_type": "fake",
                "architectures": ["FakeForCausalLM"],
            }
            | self.info
        )

    async def _server_info(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "version": self.version,
                "frontend": "python",
                "stream_interval": 1,
                "incremental_streaming_output": self.incremental,
                "allow_auto_truncate": False,
                "skip_tokenizer_init": False,
                "enable_deterministic_inference": False,
                "grammar_backend": "xgrammar",
                "max_running_requests": 48,
                "max_req_input_len": self.context - 1,
                "internal_states": [{}],
            }
            | self.settings
        )

    async def _models(self, _request: web.Request) -> web.Response:
        card = {"id": self.model, "object": "model", "owned_by": "sglang", "root": self.model, "parent": None}
        return web.json_response({"object": "list", "data": [{**card, "max_model_len": self.context}]})

    async def _tokenize(self, request: web.Request) -> web.Response:
        if self.encode is None:
            raise web.HTTPNotFound(text='{"detail":"Not Found"}', content_type="application/json")
        body = json.loads(await request.read())
        if "messages" in body:
            text = self.render(body["messages"])
        else:
            assert body["add_special_tokens"] is False
            text = body["prompt"]
        tokens = self.encode(text)
        return web.json_response({"tokens": tokens, "count": len(tokens), "max_model_len": self.context})

    async def _abort_request(self, request: web.Request) -> web.Response:
        self.aborts.append(json.loads(await request.read())["rid"])
        return web.Response(status=200)

    async def _separate_reasoning(self, request: web.Request) -> web.Response:
        """Its only parser, `fake`, takes what stands in brackets at the beginning for reasoning."""
        body = json.loads(await request.read())
        if (refused := _unknown_parser(body["reasoning_parser"])) is not None:
            return refused
        begins = body["text"].startswith("[")
        reasoning, _, text = body["text"][1:].partition("]") if begins else ("", "", body["text"])
        return web.json_response({"reasoning_text": reasoning, "text": text})

    async def _parse_function_call(self, request: web.Request) -> web.Response:
        """Its only parser, `fake`, takes `{name}` for a call without arguments, if there is such a tool."""
        body = json.loads(await request.read())
        if (refused := _unknown_parser(body["tool_call_parser"])) is not None:
            return refused
        text, calls = body["text"], []
        for tool in body["tools"]:
            name = tool["function"]["name"]
            calls += [{"tool_index": len(calls), "name": name, "parameters": "{}"}] * text.count(f"{{{name}}}")
            text = text.replace(f"{{{name}}}", "")
        return web.json_response({"normal_text": text, "calls": calls})

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        if not body["stream"]:
            self.probes.append(body)
            return web.json_response(_Run(self, body, self._greedy(body), None).whole())
        self.requests.append(body)
        fault = self.faults.popleft() if self.faults else None
        if (refused := await self._refused(request, body, fault)) is not None:
            return refused
        try:
            return await self._streamed(request, _Run(self, body, self.next_answer(body["input_ids"]), fault))
        except (asyncio.CancelledError, ConnectionResetError):
            self.gone += 1
            raise

    def _greedy(self, body: dict[str, Any]) -> list[int]:
        return self.ranked(1) * body["sampling_params"]["max_new_tokens"]

    async def _refused(
        self, request: web.Request, body: dict[str, Any], fault: Fault | None
    ) -> web.StreamResponse | None:
        if fault is Fault.HANG:
            await asyncio.Event().wait()
        if fault is Fault.RESET:
            cut(request)
            return web.Response()
        if fault is Fault.ERROR_500:
            return web.Response(status=500, text="Internal Server Error")
        if fault is Fault.HTML:
            return web.Response(text="<html>It works</html>", content_type="text/html")
        if fault is Fault.NO_STREAM:
            return web.json_response(_Run(self, body, self.next_answer(body["input_ids"]), None).whole())
        length, wanted = len(body["input_ids"]), body["sampling_params"]["max_new_tokens"]
        if length >= self.context:
            return await self._error_event(
                request,
                f"The input ({length} tokens) is longer than the model's context length ({self.context} tokens).",
            )
        if wanted is not None and length + wanted > self.context:
            return await self._error_event(
                request,
                "Requested token count exceeds the model's maximum context length "
                f"of {self.context} tokens. You requested a total of {length + wanted} tokens.",
            )
        return None

    async def _error_event(self, request: web.Request, message: str) -> web.StreamResponse:
        stream = await _opened(request)
        error = {"message": message, "type": "invalid_request_error", "code": 400, "retryable": False}
        await _send(stream, {"error": error})
        await stream.write(b"data: [DONE]\n\n")
        return stream

    async def _streamed(self, request: web.Request, run: _Run) -> web.StreamResponse:
        stream = await _opened(request)
        sent = 0
        async for event in run.events():
            if run.fault is Fault.NOT_JSON:
                await stream.write(b"data: {oops\n\n")
            else:
                await _send(stream, event)
            sent += 1
            if sent == 2 and run.fault is Fault.CUT:
                cut(request)
                return stream
            if sent == 2 and run.fault is Fault.CUT_CLEAN:
                return stream
            if sent == 2 and run.fault is Fault.ERROR_EVENT:
                error = {"message": "the backend fell over", "type": "invalid_request_error", "code": 500}
                await _send(stream, {"error": error})
                break
        # The end of a stream leaves the server a moment behind its last event.
        await asyncio.sleep(0.01)
        await stream.write(b"data: [DONE]\n\n")
        return stream


class _Run:
    """One request in the scheduler."""

    def __init__(self, fake: SglangFake, body: dict[str, Any], ids: list[int], fault: Fault | None) -> None:
        self.fake = fake
        self.fault = fault
        self._body = body
        self._sampling = body["sampling_params"]
        self._script = ids
        self._out: list[int] = []
        self._sent = 0
        self._changes: list[tuple[str, int]] = []
        self._updates = dict(fake.updates)
        fake.updates.clear()
        self._echo = self._prepared()

    def whole(self) -> dict[str, Any]:
        """The answer of a request that is not streamed."""
        reason = None
        while reason is None:
            reason = self._step()
        return self._event(reason, cumulative=True)

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Each event as it leaves; `fault` is done to it."""
        if self.fault is Fault.BUSY:
            reason = {"type": "abort", "message": "The request queue is full.", "status_code": 503, "err_type": None}
            yield self._event(reason, cumulative=True)
            return
        reason = None
        interval = self._sampling["stream_interval"] or 1
        while reason is None:
            await self.fake.pace()
            if self.fault in _UPDATES and len(self._out) == 2:
                yield self._aborted()
                return
            reason = self._step()
            unsent = len(self._out) - self._sent
            first = self._sent == 0 and unsent > 0
            due = interval == 1 or unsent >= interval or first
            joined = self.fault is Fault.UPDATE_JOINED and len(self._out) == 2
            if reason is not None or (due and not joined and not self._may_become_stop()):
                yield self._spoiled(self._event(reason, cumulative=not self.fake.incremental))

    def _prepared(self) -> list[int]:
        ids: list[int] = self._body["input_ids"]
        images = [base64.b64decode(each.partition(",")[2]) for each in self._body.get("image_data") or []]
        for url in self._body.get("image_data") or []:
            assert url.startswith("data:image/")
        if images:
            ids = self._expanded(ids, images)
        if self.fault is Fault.RETOKENIZED:
            ids = [*ids[:1], *ids[:1], *ids[1:]]
        return ids

    def _expanded(self, ids: list[int], images: list[bytes]) -> list[int]:
        # On a count mismatch the server falls back to the processor, which fills the first placeholders it finds.
        runs = [[self.fake.placeholder_id] * self.fake.image_tokens(data) for data in images]
        out: list[int] = []
        for token in ids:
            out += runs.pop(0) if token == self.fake.placeholder_id and runs else [token]
        return out

    def _step(self) -> dict[str, Any] | None:
        at = len(self._out)
        if at in self._updates:
            if at:
                self._changes.append((self.fake.weight_version, at))
            self.fake.weight_version = self._updates[at]
        self._out.append(self._script[min(at, len(self._script) - 1)])
        if self.fault is Fault.FOREIGN_ID and at == 1:
            self._out[-1] = len(self.fake.token_bytes)
        return self._finish()

    def _finish(self) -> dict[str, Any] | None:
        last, count = self._out[-1], len(self._out)
        if self.fault is Fault.NAN_HAPPENED and count == 2:
            self._out[-1] = next(iter(self.fake.eos))
            return {"type": "stop", "matched": "NaN happened"}
        if self.fault is Fault.UNKNOWN_FINISH and count == 2:
            return {"type": "preempted"}
        if self.fault is Fault.FOREIGN_STOP and count == 2:
            return {"type": "stop", "matched": "nobody sent this"}
        for stop in self._sampling["stop"] or []:
            if stop.encode() in self._text():
                return {"type": "stop", "matched": stop}
        if last in self.fake.eos or last in (self._sampling["stop_token_ids"] or []):
            if self.fault is Fault.STOP_ID_LOST or self.fake.trims_stop_ids:
                self._out.pop()
            return {"type": "stop", "matched": last}
        limit = self._sampling["max_new_tokens"]
        room = self.fake.context - len(self._echo)
        if count >= (room if limit is None else min(limit, room)):
            return {"type": "length", "length": count}
        return None

    def _text(self) -> bytes:
        return b"".join(self.fake.token_bytes[token] for token in self._out if token < len(self.fake.token_bytes))

    def _may_become_stop(self) -> bool:
        text = self._text()
        stops = [stop.encode() for stop in self._sampling["stop"] or []]
        return any(text.endswith(stop[:length]) for stop in stops for length in range(1, len(stop)))

    def _meta(self, reason: dict[str, Any] | None) -> dict[str, Any]:
        entries = [[self._number(token), token, None] for token in self._out]
        count = self._body["top_logprobs_num"]
        meta = {
            "id": self._body["rid"],
            "finish_reason": reason,
            "prompt_tokens": len(self._echo) - (self.fault is Fault.TRUNCATED),
            "weight_version": self.fake.weight_version,
            "num_retractions": 0,
            "input_token_logprobs": [],
            "output_token_logprobs": entries,
            "output_token_logprobs_length": len(entries),
            "reasoning_tokens": 0,
            "completion_tokens": len(self._out),
            "cached_tokens": max(0, len(self._echo) - 1),
        }
        if count:
            ranked = self.fake.ranked(count)
            meta["output_top_logprobs"] = [[[self._number(one), one, None] for one in ranked] for _ in self._out]
        if asked := self._body.get("token_ids_logprob"):
            meta["output_token_ids_logprobs"] = [[[self._number(one), one, None] for one in asked] for _ in self._out]
        if reason is not None:
            meta["weight_versions"] = self._spans()
        return meta

    def _event(self, reason: dict[str, Any] | None, *, cumulative: bool) -> dict[str, Any]:
        meta = self._meta(reason)
        ids = list(self._out)
        if not cumulative:
            ids = ids[self._sent :]
            for key in ("output_token_logprobs", "output_top_logprobs", "output_token_ids_logprobs"):
                if key in meta:
                    meta[key] = meta[key][self._sent :]
        self._sent = len(self._out)
        event: dict[str, Any] = {"text": "", "output_ids": ids, "meta_info": meta}
        if self._body["return_prompt_token_ids"] and self.fault is not Fault.NO_ECHO:
            event["prompt_token_ids"] = self._echo
        return event

    def _aborted(self) -> dict[str, Any]:
        reason: dict[str, Any] = {"type": "abort", "message": "Aborted"}
        if self.fault is Fault.UPDATE:
            # A request that runs ends as any other, with one token more.
            self._step()
            return self._event({**reason, "status_code": None, "err_type": None}, cumulative=not self.fake.incremental)
        meta = self._meta({**reason, "message": "Abort in waiting queue"})
        del meta["prompt_tokens"], meta["cached_tokens"]
        ids = list(self._out)
        if self.fake.incremental:
            unsent = ids[self._sent :] if self.fault is Fault.UPDATE_JOINED else []
            meta["output_token_logprobs"] = [
                *meta["output_token_logprobs"][len(ids) - len(unsent) :],
                *meta["output_token_logprobs"],
            ]
            ids = [*unsent, ids[-1]]
        return {"text": "", "output_ids": ids, "meta_info": meta, "prompt_token_ids": self._echo}

    def _number(self, token: int) -> float | None:
        if self.fault is Fault.NOT_FINITE:
            return None
        if self.fault is Fault.CLAMPED:
            return FLOAT32_MINIMUM
        if self.fault is Fault.POSITIVE:
            return 0.5
        temperature = self._sampling["temperature"]
        # Below 1e-6 the likeliest token is taken, and the numbers are those of temperature 1.
        in_number = 1.0 if self.fake.original_logprobs or temperature < 1e-6 else temperature
        return self.fake.logprob(token, in_number)

    def _spans(self) -> list[dict[str, Any]]:
        changes = [*self._changes, (self.fake.weight_version, len(self._out))]
        spans: list[dict[str, Any]] = []
        for version, end in changes:
            start = spans[-1]["end"] if spans else 0
            spans.append({"version": version, "start": start, "end": end})
        if self.fault is Fault.GAP_IN_SPANS:
            spans[0]["start"] = 1
        return spans

    def _spoiled(self, event: dict[str, Any]) -> dict[str, Any]:
        meta = event["meta_info"]
        entries = meta["output_token_logprobs"]
        if self.fault is Fault.WRONG_COUNT and meta["finish_reason"]:
            meta["completion_tokens"] += 1
        if self.fault is Fault.WRONG_LENGTH:
            meta["output_token_logprobs_length"] += 1
        if self.fault is Fault.NO_LOGPROBS:
            meta["output_token_logprobs"] = []
        if self.fault is Fault.SHORT_LOGPROBS and len(entries) > 1:
            meta["output_token_logprobs"] = entries[:-1]
        if self.fault is Fault.FOREIGN_LOGPROBS:
            meta["output_token_logprobs"] = [[number, token + 1, None] for number, token, _ in entries]
        if self.fault is Fault.CHANGED_IDS and len(event["output_ids"]) > 1:
            event["output_ids"][0] += 1
        return event


def _unknown_parser(name: str) -> web.Response | None:
    """FastAPI turns a ValueError of a parser's constructor into a bare 500."""
    return None if name == "fake" else web.Response(status=500, text="Internal Server Error")


async def _opened(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await stream.prepare(request)
    return stream


async def _send(stream: web.StreamResponse, event: dict[str, Any]) -> None:
    await stream.write(b"data: " + json.dumps(event, allow_nan=False).encode() + b"\n\n")
