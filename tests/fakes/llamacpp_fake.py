"""A llama.cpp server made of nothing but its wire: real HTTP, real JSON shapes, scripted answers, and faults on demand.

It imports nothing of Turnstile. Import it by its name, with this folder in `sys.path`, or run it:
`python tests/fakes/llamacpp_fake.py` prints its address.

    fake = LlamaFake(token_bytes=[...], special={0, 1}, eos={1})
    fake.script([5, 6, 7, 1])                    # the next new prompt is answered with these ids, then the next one
    fake.answer = lambda prompt: [...]           # or: any new prompt is answered by a function of its ids
    fake.faults.append(Fault.RESET)              # the next /completion goes wrong; one entry a request
    async with fake.serving() as url: ...        # in this event loop
    with fake.in_thread() as url: ...            # or beside the caller
    fake.requests                                # bodies of all /completion requests, decoded
    fake.aborted                                 # requests whose client went away before the answer

Answers may be fetched in pieces: a prompt that is an earlier prompt and the beginning of its answer, on the same
`id_slot` or on any slot if it names none, is continued, and a prompt that is neither starts a new answer. An answer
that does not end in an eos id goes on with the last id until `n_predict`.

Every place has the same made-up distribution: the logit of id i is `logit(i)`. So each log-probability is known:
`fake.logprob(i, temperature)`. A token that leaves the text of its request inside a character has no entry, as in
the real server.
"""

from __future__ import annotations

import asyncio
import codecs
import enum
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from fake_server import FakeServer, cut

MEDIA_MARKER = "<__media_fake__>"
IMAGE_TOKENS = 3


class Fault(enum.Enum):
    """What may go wrong with one `/completion`."""

    HANG = enum.auto()
    """Nothing is answered, ever."""
    RESET = enum.auto()
    """The connection is cut before a byte was sent."""
    HALF_BODY = enum.auto()
    """A good head, half of the body, then the connection is cut."""
    CUT_BODY = enum.auto()
    """A good head, `cut_bytes` of the body, then the connection is cut."""
    CUT_CLEAN = enum.auto()
    """A body that ends as it should behind `cut_bytes`."""
    NOT_JSON = enum.auto()
    HTML = enum.auto()
    """A page of some other server, with status 200."""
    ERROR_500 = enum.auto()
    BUSY_429 = enum.auto()
    ERROR_BODY = enum.auto()
    """An error with status 200, as a stream has it whose head has left."""
    LOADING_503 = enum.auto()
    MISSING_FIELD = enum.auto()
    WRONG_COUNT = enum.auto()
    """`tokens_predicted` is one too many."""
    TOO_MANY_TOKENS = enum.auto()
    NO_TOKENS = enum.auto()
    FOREIGN_ID = enum.auto()
    """An id outside the vocabulary."""
    NO_PROBABILITIES = enum.auto()
    FOREIGN_PROBABILITIES = enum.auto()
    """The entries belong to other tokens."""
    NULL_PROBABILITY = enum.auto()
    """Not a number, which the server's JSON library writes as null."""
    NAN_LITERAL = enum.auto()
    PROBABILITY_ABOVE_ONE = enum.auto()
    CERTAIN = enum.auto()
    """Every probability is 1, as some servers say under speculative decoding."""
    WRONG_PROMPT_LENGTH = enum.auto()
    UNKNOWN_STOP = enum.auto()
    OTHER_TEXT = enum.auto()
    """The echo of a prompt with images says something else."""
    SLOW = enum.auto()
    """Good, after `slow_s`."""


_REFUSALS: dict[Fault | None, tuple[int, str, str]] = {
    Fault.ERROR_500: (500, "the backend fell over", "server_error"),
    Fault.BUSY_429: (429, "too many requests", "rate_limit_error"),
    Fault.LOADING_503: (503, "Loading model", "unavailable_error"),
}


@dataclass
class LlamaFake(FakeServer):
    """See the module."""

    slots: int = 2
    chat_template: str = ""
    slow_s: float = 0.3
    cut_bytes: int = 0
    last_length: int = 0
    """How many bytes the latest body has, or would have if it were not cut."""
    empties_idle_slots: bool = False
    """As a server with one cache for all slots does: a slot that is named has lost its cache."""
    encode: Callable[[str], list[int]] | None = None
    """Its tokenizer. With one it takes images, each of `IMAGE_TOKENS`, and puts nothing around them."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    heads: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Target and headers of every request, names in lower case."""
    aborted: int = 0
    begun: int = 0
    """New prompts, continuations left out."""
    _running: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    _busy: set[int] = field(default_factory=set)

    def forget(self) -> None:
        """Drop scripted answers and faults, and be quick again."""
        self._scripted.clear()
        self.faults.clear()
        self.token_delay_s, self.held, self.answer = 0.0, False, None

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 26, middlewares=[self._keyed])
        app.router.add_get("/health", self._health)
        app.router.add_get("/props", self._props)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/slots", self._slots)
        app.router.add_post("/completion", self._completion)
        if self.encode is not None:
            app.router.add_post("/tokenize", self._tokenize)
            app.router.add_post("/v1/chat/completions/input_tokens", self._count)
        return app

    @web.middleware
    async def _keyed(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.heads.append((request.path_qs, {name.lower(): value for name, value in request.headers.items()}))
        if (
            self.api_key
            and request.path != "/health"
            and request.headers.get("authorization") != f"Bearer {self.api_key}"
        ):
            return _error(401, "Invalid API Key", "authentication_error")
        return await handler(request)

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _props(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "default_generation_settings": {"params": {"seed": 4294967295, "top_k": 40}, "n_ctx": self.context},
                "total_slots": self.slots,
                "model_alias": self.model,
                "model_path": "",
                "modalities": {"vision": self.encode is not None, "audio": False},
                "media_marker": MEDIA_MARKER,
                "chat_template": self.chat_template,
                "bos_token": "<s>",
                "eos_token": "</s>",
                "build_info": "b0-fake",
                "is_sleeping": False,
            }
        )

    async def _models(self, _request: web.Request) -> web.Response:
        meta = {"vocab_type": 2, "n_vocab": len(self.token_bytes), "n_ctx": self.context}
        entry = {"id": self.model, "aliases": [self.model], "object": "model", "owned_by": "llamacpp", "meta": meta}
        return web.json_response({"object": "list", "data": [entry]})

    async def _slots(self, _request: web.Request) -> web.Response:
        return web.json_response(
            [{"id": slot, "n_ctx": self.context, "is_processing": slot in self._busy} for slot in range(self.slots)]
        )

    async def _tokenize(self, request: web.Request) -> web.Response:
        assert self.encode is not None
        return web.json_response({"tokens": self.encode(json.loads(await request.read())["content"])})

    async def _count(self, request: web.Request) -> web.Response:
        """Of a chat that is one image: the template writes seven tokens around it."""
        (message,) = json.loads(await request.read())["messages"]
        return web.json_response({"input_tokens": 7 + IMAGE_TOKENS * len(message["content"])})

    def _with_images(self, body: dict[str, Any]) -> dict[str, Any]:
        """A body whose prompt is ids, an image as so many of id 0, and the echo of its text."""
        assert self.encode is not None
        texts = body["prompt"]["prompt_string"].split(MEDIA_MARKER)
        assert len(texts) == len(body["prompt"]["multimodal_data"]) + 1
        ids = self.encode(texts[0])
        for text in texts[1:]:
            ids += [0] * IMAGE_TOKENS + self.encode(text)
        return {"n_probs": 0, "temperature": 1.0, **body, "prompt": ids, "echo": "".join(texts)}

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.requests.append(body)
        if isinstance(body["prompt"], dict):
            body = self._with_images(body)
        slot = body.get("id_slot", 0) % self.slots
        self._busy.add(slot)
        try:
            return await self._answered(request, body, slot)
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        finally:
            self._busy.discard(slot)

    async def _answered(self, request: web.Request, body: dict[str, Any], slot: int) -> web.StreamResponse:
        fault = self.faults.popleft() if self.faults else None
        refused = await self._refused(request, body, fault)
        if refused is not None:
            return refused
        prompt: list[int] = body["prompt"]
        forced = next((token for token, bias in body.get("logit_bias", []) if bias >= 1000), None)
        tilted = bool(body.get("logit_bias")) and body.get("post_sampling_probs") and body["n_predict"] == 1
        if forced is not None or tilted:
            reply = self._reply(body, [forced if forced is not None else body["logit_bias"][0][0]], "limit")
        else:
            tokens, ended = self._next(body.get("id_slot", -1), prompt, max(1, body["n_predict"]))
            await self.pace(len(tokens))
            reply = self._reply(body, tokens, "eos" if ended else "limit")
        written = json.dumps(_spoiled(reply, fault, len(self.token_bytes))).encode()
        self.last_length = len(written)
        return await _sent(request, written, fault, self.cut_bytes)

    async def _refused(
        self, request: web.Request, body: dict[str, Any], fault: Fault | None
    ) -> web.StreamResponse | None:
        if fault is Fault.HANG:
            await asyncio.Event().wait()
        if fault is Fault.RESET:
            cut(request)
            return web.Response()
        if fault is Fault.SLOW:
            await asyncio.sleep(self.slow_s)
        if fault in _REFUSALS:
            return _error(*_REFUSALS[fault])
        if fault is Fault.ERROR_BODY:
            broken = {"code": 500, "message": "the backend fell over", "type": "server_error"}
            return web.json_response({"error": broken})
        prompt: list[int] = body["prompt"]
        if not prompt:
            return _error(400, '"prompt" must not be empty', "invalid_request_error")
        if not all(0 <= token < len(self.token_bytes) for token in prompt):
            return _error(400, "Prompt contains invalid tokens", "invalid_request_error")
        if len(prompt) >= self.context:
            return _error(
                400,
                f"request ({len(prompt)} tokens) exceeds the available context size ({self.context} tokens)",
                "exceed_context_size_error",
                n_prompt_tokens=len(prompt),
                n_ctx=self.context,
            )
        return None

    def _held_by(self, id_slot: int) -> list[tuple[list[int], list[int]]]:
        if id_slot < 0:
            return list(self._running.values())
        return [held for slot, held in self._running.items() if slot == id_slot % self.slots]

    def _next(self, slot: int, prompt: list[int], count: int) -> tuple[list[int], bool]:
        # A request that names no slot goes to the one that holds its beginning, as in the real server.
        for start, whole in self._held_by(slot):
            done = prompt[len(start) :]
            if done and prompt[: len(start)] == start and self._covers(whole, done):
                break
        else:
            whole = self.next_answer(prompt)
            start, done = prompt, []
            self.begun += 1
            self._running[slot % self.slots] = (start, whole)
        room = self.context - len(prompt)
        tokens: list[int] = []
        while len(tokens) < min(count, room):
            at = len(done) + len(tokens)
            tokens.append(whole[min(at, len(whole) - 1)])
            if tokens[-1] in self.eos:
                return tokens, True
        return tokens, False

    @staticmethod
    def _covers(whole: list[int], done: list[int]) -> bool:
        return done == [whole[min(at, len(whole) - 1)] for at in range(len(done))]

    def _reply(self, body: dict[str, Any], tokens: list[int], stop_type: str) -> dict[str, Any]:
        prompt: list[int] = body["prompt"]
        text = b"".join(b"" if token in self.special else self.token_bytes[token] for token in tokens)
        reply = {
            "index": 0,
            "content": text.decode(errors="replace"),
            "tokens": tokens if body.get("return_tokens") else [],
            "id_slot": body.get("id_slot", 0),
            "stop": True,
            "model": self.model,
            "tokens_predicted": len(tokens),
            "tokens_evaluated": len(prompt),
            "prompt": body.get("echo", ""),
            "generation_settings": {key: body[key] for key in body if key != "prompt"},
            "truncated": stop_type == "limit" and len(prompt) + len(tokens) >= self.context,
            "stop_type": stop_type,
            "stopping_word": "",
            "tokens_cached": len(prompt) + len(tokens) - 1,
            "timings": {"cache_n": 0 if self._is_emptied(body) else max(0, len(prompt) - 1)},
            "completion_probabilities": self._entries(body, tokens),
        }
        wanted = body.get("response_fields")
        if not wanted:
            return reply
        return {path: _at(reply, path) for path in wanted}

    def _is_emptied(self, body: dict[str, Any]) -> bool:
        return self.empties_idle_slots and body.get("id_slot", -1) >= 0

    def _entries(self, body: dict[str, Any], tokens: list[int]) -> list[dict[str, Any]]:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        entries: list[dict[str, Any]] = []
        for token in tokens:
            decoder.decode(b"" if token in self.special else self.token_bytes[token])
            if not decoder.getstate()[0]:
                entries.append(self._entry(body, token))
        return entries

    def _entry(self, body: dict[str, Any], token: int) -> dict[str, Any]:
        ranked = self.ranked(body["n_probs"])
        named = {"id": token, "token": self._shown(token), "bytes": list(self.token_bytes[token])}
        if not body.get("post_sampling_probs"):
            top = [{"id": one, "token": self._shown(one), "logprob": self.logprob(one)} for one in ranked]
            return {**named, "logprob": self.logprob(token), "top_logprobs": top}
        top = [{"id": one, "token": self._shown(one), "prob": self._prob(body, one)} for one in ranked]
        return {**named, "prob": self._prob(body, token), "top_probs": top}

    def _prob(self, body: dict[str, Any], token: int) -> float:
        temperature = body["temperature"] or 1.0
        bias = dict(body.get("logit_bias", []))
        weight = math.exp(self.logprob(token, temperature) + bias.get(token, 0.0) / temperature)
        plain = 1.0 - math.fsum(math.exp(self.logprob(one, temperature)) for one in bias)
        biased = math.fsum(
            math.exp(self.logprob(one, temperature) + value / temperature) for one, value in bias.items()
        )
        return weight / (plain + biased)

    def _shown(self, token: int) -> str:
        return self.token_bytes[token].decode(errors="replace")


def _at(reply: dict[str, Any], path: str) -> Any:
    for part in path.split("/"):
        reply = reply[part]
    return reply


def _error(status: int, message: str, kind: str, **more: int) -> web.Response:
    return web.json_response({"error": {"code": status, "message": message, "type": kind, **more}}, status=status)


def _spoiled(reply: dict[str, Any], fault: Fault | None, vocab_size: int) -> dict[str, Any]:
    tokens = reply.get("tokens", [])
    entries = reply.get("completion_probabilities", [])
    long = [*tokens, *tokens[-1:] * 64]
    changed: dict[Fault | None, dict[str, Any]] = {
        Fault.WRONG_COUNT: {"tokens_predicted": len(tokens) + 1},
        Fault.TOO_MANY_TOKENS: {"tokens": long, "tokens_predicted": len(long)},
        Fault.NO_TOKENS: {"tokens": [], "tokens_predicted": 0},
        Fault.FOREIGN_ID: {"tokens": [*tokens[:-1], vocab_size]},
        Fault.NO_PROBABILITIES: {"completion_probabilities": []},
        Fault.FOREIGN_PROBABILITIES: {"completion_probabilities": [{**one, "id": one["id"] + 1} for one in entries]},
        Fault.NULL_PROBABILITY: {"completion_probabilities": [{**one, "prob": None} for one in entries]},
        Fault.NAN_LITERAL: {"completion_probabilities": [{**one, "prob": math.nan} for one in entries]},
        Fault.PROBABILITY_ABOVE_ONE: {"completion_probabilities": [{**one, "prob": 1.5} for one in entries]},
        Fault.CERTAIN: {"completion_probabilities": [{**one, "prob": 1.0, "logprob": 0.0} for one in entries]},
        Fault.WRONG_PROMPT_LENGTH: {"tokens_evaluated": reply.get("tokens_evaluated", 0) + 1},
        Fault.UNKNOWN_STOP: {"stop_type": "none"},
        Fault.OTHER_TEXT: {"prompt": "something else"},
    }
    spoiled = {**reply, **changed.get(fault, {})}
    if fault is Fault.MISSING_FIELD:
        del spoiled["tokens"]
    return spoiled


async def _sent(request: web.Request, written: bytes, fault: Fault | None, cut_bytes: int) -> web.StreamResponse:
    if fault is Fault.NOT_JSON:
        written = written[: len(written) // 2]
    if fault is Fault.HTML:
        return web.Response(text="<html>It works</html>", content_type="text/html")
    if fault is Fault.CUT_CLEAN:
        return web.Response(body=written[:cut_bytes], content_type="application/json")
    sent = {Fault.HALF_BODY: len(written) // 2, Fault.CUT_BODY: cut_bytes}.get(fault or Fault.SLOW, len(written))
    if sent < len(written):
        response = web.StreamResponse(headers={"content-length": str(len(written))})
        await response.prepare(request)
        await response.write(written[:sent])
        cut(request)
        return response
    return web.Response(body=written, content_type="application/json")


async def _main() -> None:
    printable = [b"<s>", b"</s>", *(bytes([byte]) for byte in range(256))]
    fake = LlamaFake(printable, special=frozenset({0, 1}), eos=frozenset({1}))
    fake.answer = lambda _prompt: [*(2 + byte for byte in "Hello 🙂".encode()), 1]
    async with fake.serving() as url:
        print(json.dumps({"url": url}), flush=True)  # noqa: T201 - it is the program's answer
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
