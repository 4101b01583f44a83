"""A vLLM server made of nothing but its wire, written from answers that vLLM 0.32.0 gave.

It imports nothing of Turnstile. Import it by its name, with this folder in `sys.path`.

    fake = VllmFake(token_bytes=[...], special={0, 1}, eos={1})
    fake.script([5, 6, 7, 1])                    # the next streamed request is answered with these ids
    fake.faults.append(Fault.CUT)                # the next streamed request goes wrong; one entry a request
    async with fake.serving() as url: ...        # in this event loop
    with fake.in_thread() as url: ...            # or beside the caller
    fake.requests                                # (path, body) of all streamed requests, decoded
    fake.gone                                    # requests whose client went away before the answer's end

The doors: `/v1/chat/completions` with `kv_transfer_params.prompt_token_ids`, `/v1/completions`, and, with
`scale_out`, `/inference/v1/generate` and `/v1/chat/completions/derender`. With `dev_mode` also `/weight_info`,
`/update_weight_version` and `/server_info`. Requests that are not streamed are taken for probes and use no script.

Every place has the same made-up distribution: the logit of id i is `logit(i)`, so each log-probability is known.
`answered` says what a chat answer reads like; the one here knows `<think>` and Hermes' `<tool_call>`.
"""

from __future__ import annotations

import asyncio
import enum
import json
import math
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from fake_server import FakeServer, cut

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/inference/v1/generate"
CREATED = 1796160070
CLAMPED = -9999.0
FINGERPRINT = "vllm-0.32.0-703e3337"


class Fault(enum.Enum):
    """What may go wrong with one streamed request."""

    HANG = enum.auto()
    """Nothing is answered, ever."""
    SLOW = enum.auto()
    """Good, after `slow_s`."""
    RESET = enum.auto()
    """The connection is cut before a byte was sent."""
    CLOSED = enum.auto()
    """A good answer, and then the connection is closed although it was to be kept."""
    CUT = enum.auto()
    """Three events, then the connection is cut."""
    CUT_CLEAN = enum.auto()
    """Three events, then a body that ends as it should, without its end mark."""
    ERROR_500 = enum.auto()
    BUSY_503 = enum.auto()
    ERROR_EVENT = enum.auto()
    """Three events, then an error in a stream whose status was 200, as when the engine's core died."""
    HTML = enum.auto()
    NOT_JSON = enum.auto()
    NO_STREAM = enum.auto()
    """One whole answer."""
    OTHER_PROMPT = enum.auto()
    """The ids were ignored, and the messages rendered."""
    NO_ECHO = enum.auto()
    NO_IDS = enum.auto()
    """As a version that does not know `return_token_ids`."""
    LOST_IDS = enum.auto()
    """Events whose text a parser held back bring no ids."""
    WRONG_COUNT = enum.auto()
    """`completion_tokens` is one too many."""
    NO_COUNT = enum.auto()
    FOREIGN_ID = enum.auto()
    """An id outside the vocabulary."""
    NO_LOGPROBS = enum.auto()
    SHORT_LOGPROBS = enum.auto()
    """The last event has none."""
    FOREIGN_LOGPROBS = enum.auto()
    """They belong to other tokens."""
    CLAMPED = enum.auto()
    """NaN or minus infinity, as the server writes them."""
    NULL_LOGPROBS = enum.auto()
    NAN_LITERAL = enum.auto()
    POSITIVE = enum.auto()
    ALL_ZERO = enum.auto()
    STOP_ID_LOST = enum.auto()
    FOREIGN_STOP = enum.auto()
    """A stop string that nobody sent."""
    ABORTED = enum.auto()
    """The engine ended it, as it does for an update of the weights."""
    UNKNOWN_FINISH = enum.auto()
    NO_FINISH = enum.auto()
    GAP_IN_SPANS = enum.auto()


_ONLY = re.compile(r'root ::= "(\w+)"\s*')
"""The one grammar that is known: a single word."""
_THINKS = re.compile(r"\s*<think>(?P<reasoning>.*?)(</think>(?P<rest>.*)|\Z)", re.DOTALL)
_CALLS = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def hermes(text: str) -> dict[str, Any]:
    """What a text says, as the parsers `qwen3` and `hermes` read it; calls only when they are whole."""
    found = _THINKS.match(text)
    reasoning, rest = (found["reasoning"], found["rest"] or "") if found else ("", text)
    content, _, _ = rest.partition("<tool_call>")
    calls = [json.loads(each) for each in _CALLS.findall(rest)]
    held = next((n for n in range(len("<tool_call>"), 0, -1) if content.endswith("<tool_call>"[:n])), 0)
    return {"reasoning": reasoning, "content": content[: len(content) - held], "calls": calls}


@dataclass
class VllmFake(FakeServer):
    """See the module."""

    root: str = "org/fake"
    version: str = "0.32.0"
    scale_out: bool = True
    dev_mode: bool = True
    constrains: bool = True
    """Whether a grammar holds from the first token on; behind a reasoning parser it waits for the reasoning's end."""
    has_parsers: bool = True
    """`--enable-auto-tool-choice --tool-call-parser NAME`."""
    takes_ids_in_chat: bool = True
    returns_ids: bool = True
    processed: bool = True
    """`--logprobs-mode processed_logprobs`."""
    max_logprobs: int = 20
    encode: Callable[[str], list[int]] | None = None
    """Its tokenizer, for `/tokenize`."""
    answered: Callable[[str], dict[str, Any]] = hermes
    placeholder_id: int | None = None
    image_tokens: Callable[[str], int] = lambda url: 2 + len(url) % 5
    slow_s: float = 0.3
    weight_version: str = "default"
    updates: dict[int, str] = field(default_factory=dict)
    """In the next streamed request, the version of the weights from an output index on."""
    logit: Callable[[int], float] = lambda token: -(token * 7 % 101) / 16 - token / 20_000
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    probes: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    gone: int = 0
    running: int = 0
    connections: set[Any] = field(default_factory=set)

    def forget(self) -> None:
        """Leave nothing for the next test."""
        self._scripted.clear()
        self.faults.clear()
        self.updates.clear()
        self.answer = None
        self.held = False

    def text(self, ids: Sequence[int]) -> str:
        """What ids read like; special tokens are hidden."""
        shown = (self.token_bytes[one] for one in ids if one not in self.special and one < len(self.token_bytes))
        return b"".join(shown).decode(errors="ignore")

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 26, middlewares=[self._keyed])
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/load", self._load)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/detokenize", self._detokenize)
        app.router.add_post(CHAT, self._draw)
        app.router.add_post(COMPLETIONS, self._draw)
        app.router.add_post(GENERATE, self._draw if self.scale_out else self._closed)
        app.router.add_post(f"{CHAT}/derender", self._derender if self.scale_out else self._closed)
        if self.dev_mode:
            app.router.add_get("/weight_info", self._weight_info)
            app.router.add_post("/update_weight_version", self._update_weight_version)
            app.router.add_get("/server_info", self._server_info)
        return app

    @web.middleware
    async def _keyed(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.connections.add(request.transport)
        if (
            self.api_key
            and request.path.startswith(("/v1", "/inference"))
            and request.headers.get("authorization") != f"Bearer {self.api_key}"
        ):
            return web.json_response({"error": "Unauthorized"}, status=401)
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return web.json_response({"detail": "Not Found"}, status=404)

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=200)

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": self.version})

    async def _load(self, _request: web.Request) -> web.Response:
        return web.json_response({"server_load": self.running})

    async def _models(self, _request: web.Request) -> web.Response:
        card = {"id": self.model, "object": "model", "created": CREATED, "owned_by": "vllm", "root": self.root}
        card |= {"parent": None, "max_model_len": self.context, "permission": []}
        return web.json_response({"object": "list", "data": [card]})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        if "messages" in body:
            if self.placeholder_id is None:
                return _error(400, "At most 0 image(s) may be provided in one prompt.", "BadRequestError")
            return self._tokenized([self.placeholder_id])
        if self.encode is None:
            raise web.HTTPNotFound
        return self._tokenized(self.encode(body["prompt"]))

    def _tokenized(self, tokens: list[int]) -> web.Response:
        return web.json_response(
            {"count": len(tokens), "max_model_len": self.context, "tokens": tokens, "token_strs": None}
        )

    async def _detokenize(self, request: web.Request) -> web.Response:
        return web.json_response({"prompt": self.text(json.loads(await request.read())["tokens"])})

    async def _weight_info(self, _request: web.Request) -> web.Response:
        return web.json_response({"weight_version": self.weight_version})

    async def _update_weight_version(self, request: web.Request) -> web.Response:
        self.weight_version = json.loads(await request.read())["new_version"]
        return web.json_response({"success": True, "new_version": self.weight_version})

    async def _server_info(self, _request: web.Request) -> web.Response:
        mode = "processed_logprobs" if self.processed else "raw_logprobs"
        return web.json_response({"vllm_config": f"model='{self.root}', logprobs_mode={mode}"})

    async def _closed(self, _request: web.Request) -> web.Response:
        return _error(
            403,
            "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.",
            "PermissionDeniedError",
        )

    async def _derender(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        if "chat_request" not in body:
            return _error(400, "chat_request is required", "BadRequestError", "chat_request")
        if body.get("stream"):
            return web.json_response(self._derendered_chunk(body))
        answer = body["generate_response"]
        choices = []
        for choice in answer["choices"]:
            said = self.answered(self.text(choice["token_ids"]))
            finish = choice["finish_reason"]
            choices.append({"index": 0, "message": _message(said), "finish_reason": finish, "stop_reason": None})
        named = {"id": answer.get("request_id", "x"), "object": "chat.completion", "created": CREATED}
        return web.json_response({**named, "model": self.model, "choices": choices})

    def _derendered_chunk(self, body: dict[str, Any]) -> dict[str, Any]:
        chunk = body["generate_chunk"]
        state = body.get("stream_state") or {"output_token_ids": [], "role_sent": False}
        before: list[int] = state["output_token_ids"]
        after = [*before, *chunk["choices"][0]["token_ids"]]
        delta = self.delta(before, after)
        said = {"role": None if state["role_sent"] else "assistant", "content": None, "reasoning": None, **delta}
        finish = chunk["choices"][0].get("finish_reason")
        choice = {"index": 0, "delta": said, "logprobs": None, "finish_reason": finish, "token_ids": None}
        named = {"id": chunk["request_id"], "object": "chat.completion.chunk", "created": CREATED}
        return {
            "chunk": {**named, "model": self.model, "choices": [choice], "usage": None},
            "stream_state": {"output_token_ids": after, "role_sent": True, "last_tool_call_ids": []},
        }

    def delta(self, before: Sequence[int], after: Sequence[int]) -> dict[str, Any]:
        """What the parsers say when the ids have grown; empty if nothing."""
        old, new = self.answered(self.text(before)), self.answered(self.text(after))
        said: dict[str, Any] = {
            name: new[name][len(old[name]) :] for name in ("reasoning", "content") if len(new[name]) > len(old[name])
        }
        calls = [_call(at, each) for at, each in enumerate(new["calls"]) if at >= len(old["calls"])]
        return said | ({"tool_calls": calls} if calls else {})

    async def _draw(self, request: web.Request) -> web.StreamResponse:
        path, body = request.path, json.loads(await request.read())
        is_streamed = bool(body.get("stream"))
        (self.requests if is_streamed else self.probes).append((path, body))
        fault = self.faults.popleft() if is_streamed and self.faults else None
        refused = await self._refused(request, path, body, fault)
        if refused is not None:
            return refused
        run = _Run(self, path, body, fault)
        if not is_streamed or fault is Fault.NO_STREAM:
            return web.json_response(run.whole())
        self.running += 1
        try:
            return await self._streamed(request, run)
        except (asyncio.CancelledError, ConnectionResetError):
            self.gone += 1
            raise
        finally:
            self.running -= 1

    async def _refused(
        self, request: web.Request, path: str, body: dict[str, Any], fault: Fault | None
    ) -> web.StreamResponse | None:
        if fault is Fault.HANG:
            await asyncio.Event().wait()
        if fault is Fault.SLOW:
            await asyncio.sleep(self.slow_s)
        if fault is Fault.RESET:
            cut(request)
            return web.Response()
        if fault is Fault.ERROR_500:
            return _error(500, "EngineCore encountered an issue. See stack trace (above) for the root cause.",
                          "InternalServerError")  # fmt: skip
        if fault is Fault.BUSY_503:
            return _error(503, "The server is shutting down", "ServiceUnavailableError")
        if fault is Fault.HTML:
            return web.Response(text="<html>It works</html>", content_type="text/html")
        if body.get("model") not in (self.model, None):
            return _error(404, f"The model `{body['model']}` does not exist.", "NotFoundError", "model")
        params = body["sampling_params"] if path == GENERATE else body
        if max(params.get("logprobs") or 0, params.get("top_logprobs") or 0) > self.max_logprobs:
            message = f"Requested sample logprobs of more than the max allowed: {self.max_logprobs}"
            return _error(400, message, "BadRequestError", "logprobs")
        return await self._unfit(request, path, prompt_of(path, body) or [0], body)

    async def _unfit(
        self, request: web.Request, path: str, prompt: list[int], body: dict[str, Any]
    ) -> web.StreamResponse | None:
        foreign = next((token for token in prompt if not 0 <= token < len(self.token_bytes)), None)
        if foreign is not None:
            param = "kv_transfer_params.prompt_token_ids" if path == CHAT else None
            return _error(400, f"Token id {foreign} is out of vocabulary", "BadRequestError", param)
        if path == CHAT and body.get("tools") and not self.has_parsers:
            message = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            return _error(400, message, "BadRequestError")
        wanted = body.get("max_tokens")
        if path == CHAT and wanted is not None and wanted > self.context:
            message = f"max_tokens={wanted} cannot be greater than max_model_len={self.context}."
            return _error(400, message, "BadRequestError", "max_tokens")
        if len(prompt) < self.context:
            return None
        if path == GENERATE:
            message = (
                f"The decoder prompt (length {len(prompt)}) is longer than the maximum model length of {self.context}."
            )
            if not body.get("stream"):
                return _error(400, message, "BadRequestError")
            stream = await _opened(request)
            await _send(stream, {"error": _detail(400, message, "BadRequestError")})
            await stream.write(b"data: [DONE]\n\n")
            return stream
        if path == CHAT:
            message = f"Input length ({len(prompt)}) exceeds model's maximum context length ({self.context})."
            return _error(400, message, "BadRequestError")
        message = (
            f"This model's maximum context length is {self.context} tokens. However, your prompt contains "
            f"{len(prompt)} input tokens, which exceeds this limit even without any output tokens."
        )
        return _error(400, message, "BadRequestError", "input_tokens")

    async def _streamed(self, request: web.Request, run: _Run) -> web.StreamResponse:
        stream = await _opened(request)
        sent = 0
        async for event in run.events():
            if run.fault is Fault.NOT_JSON and sent == 1:
                await stream.write(b"data: {oops\n\n")
            await _send(stream, event)
            sent += 1
            if sent == 3 and run.fault in (Fault.CUT, Fault.CUT_CLEAN):
                if run.fault is Fault.CUT:
                    cut(request)
                return stream
            if sent == 3 and run.fault is Fault.ERROR_EVENT:
                message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
                await _send(stream, {"error": _detail(500, message, "InternalServerError")})
                break
        await stream.write(b"data: [DONE]\n\n")
        if run.fault is Fault.CLOSED:
            await stream.write_eof()
            assert request.transport is not None
            request.transport.close()
        return stream


def prompt_of(path: str, body: dict[str, Any]) -> list[int]:
    """The ids that a request brings; empty: none."""
    match path:
        case "/v1/chat/completions":
            return (body.get("kv_transfer_params") or {}).get("prompt_token_ids") or []
        case "/v1/completions":
            return body["prompt"]
        case _:
            return body["token_ids"]


class _Run:
    """One request in the engine."""

    def __init__(self, fake: VllmFake, path: str, body: dict[str, Any], fault: Fault | None) -> None:
        self.fake = fake
        self.fault = fault
        self._path = path
        self._body = body
        self._params: dict[str, Any] = body["sampling_params"] if path == GENERATE else body
        self._prompt, self._ranges = self._prepared()
        self._script = self._next()
        self._out: list[int] = []
        self._sent = 0
        self._changes: list[tuple[str, int]] = []
        self._updates = dict(fake.updates) if body.get("stream") else {}
        if body.get("stream"):
            fake.updates.clear()
        self._finish: str | None = None
        self._stop_reason: int | str | None = None

    def _prepared(self) -> tuple[list[int], list[dict[str, int]]]:
        fake, ids = self.fake, prompt_of(self._path, self._body)
        if self.fault is Fault.OTHER_PROMPT or (self._path == CHAT and not (fake.takes_ids_in_chat and ids)):
            return [2, 3, 4], []
        parts = [fake.image_tokens(part["url"]) for part in self._body.get("content_parts") or []]
        ranges: list[dict[str, int]] = []
        out: list[int] = []
        for token in ids:
            if token == fake.placeholder_id and parts:
                ranges.append({"offset": len(out), "length": parts[0]})
                out += [token] * parts.pop(0)
            else:
                out.append(token)
        return out, ranges

    def _next(self) -> list[int]:
        fake = self.fake
        grammar = (self._params.get("structured_outputs") or {}).get("grammar") or ""
        if fake.constrains and (only := _ONLY.fullmatch(grammar)):
            spelled = [fake.token_bytes.index(bytes([byte])) for byte in only[1].encode()]
            return [*spelled, *sorted(fake.eos)[:1]]
        if self._body.get("stream") and fake._scripted:
            return fake._scripted.popleft()
        if self._body.get("stream") and fake.answer is not None:
            return fake.answer(self._prompt)
        return fake.ranked(1)

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Each event as it leaves; `fault` is done to it."""
        if self._path == CHAT:
            opening = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}
            yield self._with_echo(self._chunk([{**opening, "finish_reason": None}]))
        while self._finish is None:
            await self.fake.pace()
            self._step()
            yield self._event()
        if self.fault is not Fault.NO_COUNT and (self._body.get("stream_options") or {}).get("include_usage"):
            yield {**self._chunk([]), "usage": self._usage()}

    def whole(self) -> dict[str, Any]:
        """The answer of a request that is not streamed."""
        while self._finish is None:
            self._step()
        if self._path == CHAT:
            said = self.fake.answered(self.fake.text(self._out))
            choice = {"index": 0, "message": _message(said), "logprobs": self._logprobs(self._out)}
            choice |= {"finish_reason": self._finish, "stop_reason": self._stop_reason, **self._ids(self._out)}
            return self._with_echo({**self._chunk([choice]), "usage": self._usage()})
        event = self._event()
        event["usage"] = self._usage()
        asked = self._params.get("prompt_logprobs")
        if asked is not None:
            # Always those of the model itself, whatever the server's mode is.
            known = [self._row([one, *self.fake.ranked(asked)]) for one in self._prompt[1:]]
            (event if self._path == GENERATE else event["choices"][0])["prompt_logprobs"] = [None, *known]
        return event

    def _row(self, tokens: list[int]) -> dict[str, Any]:
        return {str(one): {"logprob": self.fake.logprob(one), "rank": 1} for one in tokens}

    def _step(self) -> None:
        fake, at = self.fake, len(self._out)
        if at in self._updates:
            if at:
                self._changes.append((fake.weight_version, at))
            fake.weight_version = self._updates[at]
        self._out.append(self._script[min(at, len(self._script) - 1)])
        if self.fault is Fault.FOREIGN_ID and at == 1:
            self._out[-1] = len(fake.token_bytes)
        self._finish, self._stop_reason = self._ended()

    def _ended(self) -> tuple[str | None, int | str | None]:
        last, count = self._out[-1], len(self._out)
        if count == 2 and self.fault is Fault.ABORTED:
            return "abort", None
        if count == 2 and self.fault is Fault.UNKNOWN_FINISH:
            return "preempted", None
        if count == 2 and self.fault is Fault.FOREIGN_STOP:
            return "stop", "nobody sent this"
        if last in self.fake.eos:
            return "stop", None
        if last in (self._params.get("stop_token_ids") or []):
            return "stop", last
        text = self.fake.text(self._out)
        for stop in self._params.get("stop") or []:
            if stop in text:
                return "stop", stop
        limit = self._params.get("max_tokens") or self.fake.context
        return ("length", None) if count >= min(limit, self.fake.context - len(self._prompt)) else (None, None)

    def _event(self) -> dict[str, Any]:
        before, ids = self._out[: self._sent], self._out[self._sent :]
        is_first, self._sent = self._sent == 0, len(self._out)
        delta = self.fake.delta(before, self._out) if self._path == CHAT else {}
        shown = [] if self._finish and self.fault is Fault.STOP_ID_LOST else ids
        if self.fault is Fault.LOST_IDS and not delta:
            shown = []
        finish = None if self.fault is Fault.NO_FINISH else self._finish
        choice = {"index": 0, "finish_reason": finish, "logprobs": self._logprobs(shown), **self._ids(shown)}
        match self._path:
            case "/v1/chat/completions":
                choice["delta"] = delta or {"content": ""}
                if finish == "stop" and self.fake.answered(self.fake.text(self._out))["calls"]:
                    choice["finish_reason"] = "tool_calls"
                choice |= {"stop_reason": self._stop_reason} if finish else {}
                return self._chunk([choice])
            case "/v1/completions":
                choice |= {"text": self.fake.text(ids), "stop_reason": self._stop_reason}
                choice["prompt_token_ids"] = self._prompt if is_first and self._echoes else None
                return self._chunk([choice])
            case _:
                spans = self._spans() if self._finish else None
                choice |= {"stop_reason": self._stop_reason, "weight_versions": spans, "sampling_mask": None}
                chunk = self._chunk([choice])
                return self._with_echo(chunk) if is_first else chunk

    @property
    def _echoes(self) -> bool:
        asked = self._body.get("return_token_ids") and self.fake.returns_ids
        return bool(asked) and self.fault not in (Fault.NO_ECHO, Fault.NO_IDS)

    def _ids(self, ids: list[int]) -> dict[str, Any]:
        # `generate` has nothing but ids.
        asked = self._body.get("return_token_ids") and self.fake.returns_ids and self.fault is not Fault.NO_IDS
        return {"token_ids": ids} if asked or self._path == GENERATE else {}

    def _with_echo(self, chunk: dict[str, Any]) -> dict[str, Any]:
        if self._echoes:
            chunk["prompt_token_ids"] = self._prompt
        if self._ranges:
            chunk["mm_placeholders"] = {"image": self._ranges}
        return chunk

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        match self._path:
            case "/v1/chat/completions":
                named = {"id": "chatcmpl-a8ce2a7f369ef787", "object": "chat.completion.chunk"}
            case "/v1/completions":
                named = {"id": "cmpl-baf9f7c789fcd214", "object": "text_completion"}
            case _:
                named = {"request_id": "generate-tokens-a968dba3539be720", "output_mode": "tokens", "usage": None}
                return {**named, "choices": choices}
        return {**named, "created": CREATED, "model": self.fake.model, "choices": choices}

    def _usage(self) -> dict[str, Any]:
        count = len(self._out) + (self.fault is Fault.WRONG_COUNT)
        return {"prompt_tokens": len(self._prompt), "total_tokens": len(self._prompt) + count,
                "completion_tokens": count, "prompt_tokens_details": None}  # fmt: skip

    def _spans(self) -> list[dict[str, Any]]:
        spans: list[dict[str, Any]] = []
        for version, end in [*self._changes, (self.fake.weight_version, len(self._out))]:
            spans.append({"version": version, "start": spans[-1]["end"] if spans else 0, "end": end})
        if self.fault is Fault.GAP_IN_SPANS:
            spans[-1]["start"] += 1
        return spans

    def _number(self, token: int) -> float | None:
        special = {Fault.CLAMPED: CLAMPED, Fault.NULL_LOGPROBS: None, Fault.NAN_LITERAL: math.nan}
        special |= {Fault.POSITIVE: 0.5, Fault.ALL_ZERO: 0.0}
        if self.fault in special:
            return special[self.fault]
        temperature = self._params.get("temperature", 1.0)
        return self.fake.logprob(token, temperature if self.fake.processed and temperature > 0 else 1.0)

    def _logprobs(self, ids: list[int]) -> dict[str, Any] | None:
        asked = self._params.get("logprobs")
        is_off = asked is None or asked is False or self.fault is Fault.NO_LOGPROBS
        if is_off or (self.fault is Fault.SHORT_LOGPROBS and self._finish):
            return None
        count = self._params.get("top_logprobs", 0) if self._path == CHAT else asked
        ranked = self.fake.ranked(count)
        named = [one + (self.fault is Fault.FOREIGN_LOGPROBS) for one in ids]
        if self._path == COMPLETIONS:
            tops = [{self._name(each): self._number(each) for each in [one, *ranked]} for one in named]
            numbers = [self._number(one) for one in named]
            names = [self._name(one) for one in named]
            return {"text_offset": [0] * len(named), "token_logprobs": numbers, "tokens": names, "top_logprobs": tops}
        return {"content": [{**self._entry(one), "top_logprobs": list(map(self._entry, ranked))} for one in named]}

    def _entry(self, token: int) -> dict[str, Any]:
        if self._path == GENERATE:
            return {"token_id": token, "logprob": self._number(token), "rank": 1}
        return {"token": self._name(token), "logprob": self._number(token), "bytes": list(self._bytes(token))}

    def _name(self, token: int) -> str:
        asked = self._body.get("return_tokens_as_token_ids")
        return f"token_id:{token}" if asked else self._bytes(token).decode(errors="replace")

    def _bytes(self, token: int) -> bytes:
        return self.fake.token_bytes[token] if token < len(self.fake.token_bytes) else b""


def _call(at: int, call: dict[str, Any]) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    return {"index": at, "id": f"chatcmpl-tool-{at:016x}", "type": "function", "function": function}


def _message(said: dict[str, Any]) -> dict[str, Any]:
    calls = [{name: value for name, value in _call(at, each).items() if name != "index"}
             for at, each in enumerate(said["calls"])]  # fmt: skip
    message = {"role": "assistant", "content": said["content"] or None, "refusal": None}
    message |= {"reasoning": said["reasoning"] or None}
    return message | ({"tool_calls": calls} if calls else {})


def _detail(status: int, message: str, kind: str, param: str | None = None) -> dict[str, Any]:
    return {"message": message, "type": kind, "param": param, "code": status}


def _error(status: int, message: str, kind: str, param: str | None = None) -> web.Response:
    return web.json_response({"error": _detail(status, message, kind, param)}, status=status)


async def _opened(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await stream.prepare(request)
    return stream


async def _send(stream: web.StreamResponse, event: dict[str, Any]) -> None:
    await stream.write(b"data: " + json.dumps(event).encode() + b"\n\n")
