"""SGLang's server: token ids and images in; ids, log-probabilities, the stop and the weights that sampled them out.

Its native `/generate` is used, streamed: the chat route drops ids from streams and images from prompts of ids.
Everything about the wire was read in the source of version 0.5.23 and not run (docs/decisions/0023-sglang.md), so
each answer is checked, and what is not known is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Callable
from http.client import NOT_FOUND

import msgspec

from turnstile.conversation import Message
from turnstile.engines.base import Capabilities
from turnstile.engines.llamacpp import random_seed
from turnstile.engines.prompt_json import PromptJson
from turnstile.engines.sglang_capabilities import Found, capabilities_of
from turnstile.engines.sglang_probe import Findings, probe
from turnstile.engines.sglang_reading import reading_of, text_of
from turnstile.engines.sglang_request import Request, image_data, sampling_of, stream_interval, written
from turnstile.engines.sglang_run import Run
from turnstile.engines.sglang_shapes import Event, ModelInfo, Models, ServerInfo, Tokenized, broken, decoded, read
from turnstile.engines.wire import Wire, WireAnswer
from turnstile.errors import EngineError, TurnstileError
from turnstile.generation import Draw, Emit, Generation, LogprobsMode, Prompt
from turnstile.tokens import IdRun, Vocabulary

_PROBE_S = 120.0
"""The first request after a start may compile kernels for a minute."""
_ABORT_S = 2.0
_DRAIN_S = 1.0
_DONE = b"[DONE]"
_LONG_ANSWER = 8192
"""What an answer without a limit is reckoned with when its events are sized."""


def random_rid() -> str:
    """A request's id. All are equally long: an abort ends every request whose id begins with the one it names."""
    return secrets.token_hex(16)


async def is_sglang(wire: Wire) -> bool:
    """Whether `/model_info` answers as SGLang's does. Raises: EngineError `engine_unreachable`."""
    answer = await _told(wire, "model_info")
    if answer.status != 200:
        return False
    try:
        msgspec.json.decode(answer.body, type=ModelInfo)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


async def _told(wire: Wire, what: str) -> WireAnswer:
    """`/WHAT`, or `/get_WHAT`, its name in earlier versions."""
    answer = await wire.get(f"/{what}")
    return await wire.get(f"/get_{what}") if answer.status == NOT_FOUND else answer


async def _probed(wire: Wire, rids: Callable[[], str]) -> Findings:
    async def ask(body: bytes) -> Event:
        return read(await wire.post("/generate", body), Event)

    try:
        async with asyncio.timeout(_PROBE_S):
            return await probe(ask, rids)
    except TimeoutError as late:
        raise EngineError(
            f"SGLang at {wire.base_url} did not answer a request of one token within {_PROBE_S:.0f} s",
            "Look whether it is paused (/pause_generation) or still loading",
            code="engine_unreachable",
        ) from late


class SglangServer:
    """An SGLang server that answers, and what was found out about it. `speaking` makes it an engine."""

    def __init__(self, wire: Wire, found: Found) -> None:
        self.wire = wire
        self.found = found
        self._capabilities = capabilities_of(found)

    @classmethod
    async def open(cls, url: str, api_key: str = "", rids: Callable[[], str] = random_rid) -> SglangServer:
        """Connect, read `/model_info`, `/server_info` and `/v1/models`, and probe.

        Raises: EngineError `engine_unreachable`, `engine_refused` or `engine_broken`.
        """
        async with contextlib.AsyncExitStack() as undo:
            wire = Wire.open(url, api_key)
            undo.push_async_callback(wire.close)
            model = read(await _told(wire, "model_info"), ModelInfo)
            if not model.is_generation:
                raise broken("`is_generation` is false: it serves a model that generates nothing")
            server = read(await _told(wire, "server_info"), ServerInfo)
            models = read(await wire.get("/v1/models"), Models)
            found = Found(model, server, models, await _probed(wire, rids))
            undo.pop_all()
        return cls(wire, found)

    @property
    def capabilities(self) -> Capabilities:
        """What the server was found to do."""
        return self._capabilities

    @property
    def model_path(self) -> str:
        """Where the server says its weights are, on its own machine."""
        return self.found.model.model_path

    def speaking(
        self,
        vocabulary: Vocabulary,
        seeds: Callable[[], int] = random_seed,
        rids: Callable[[], str] = random_rid,
    ) -> Sglang:
        """The engine, once the tokenizer is known.

        Args:
            vocabulary: the bytes of each id, to find stop strings.
            seeds: where seeds come from for draws that name none.
            rids: where ids of requests come from; all of one length.
        """
        return Sglang(self, vocabulary, seeds, rids)

    async def tokenize(self, text: str) -> IdRun | None:
        """How the server turns text into ids, special tokens recognised and none added; None if it has no tokenizer.

        Raises: EngineError.
        """
        if self.found.server.skip_tokenizer_init:
            return None
        body = msgspec.json.encode({"prompt": text, "add_special_tokens": False})
        answer = await self.wire.post("/v1/tokenize", body)
        return None if answer.status == NOT_FOUND else IdRun.of(read(answer, Tokenized).tokens)

    async def chat_ids(self, messages: tuple[Message, ...]) -> IdRun | None:
        """Which ids the server's own chat route would make of messages of text; None if it cannot say."""
        told = [{"role": message.role.value, "content": message.text} for message in messages]
        answer = await self.wire.post("/v1/tokenize", msgspec.json.encode({"messages": told}))
        return IdRun.of(read(answer, Tokenized).tokens) if answer.status == 200 else None

    async def health(self) -> str:
        """Empty if it is ready, else what is wrong, as a sentence. An idle server samples a token to answer."""
        return await self.wire.health("SGLang")

    async def close(self) -> None:
        """Close all connections."""
        await self.wire.close()


class Sglang:
    """The engine behind an SGLang server."""

    def __init__(
        self, server: SglangServer, vocabulary: Vocabulary, seeds: Callable[[], int], rids: Callable[[], str]
    ) -> None:
        self._server = server
        self._vocabulary = vocabulary
        self._seeds = seeds
        self._rids = rids
        self._prompts = PromptJson()

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; fixed after start."""
        return self._server.capabilities

    async def generate(self, prompt: Prompt, draw: Draw, emit: Emit) -> Generation:
        """Sample one completion; see `Engine.generate`.

        Raises: EngineError; EchoMismatch before anything is emitted, if the server ran other ids; CallerError
        `context_length_exceeded`.
        """
        rid = self._rids()
        run = Run(prompt, draw, self._vocabulary, self._mode, rid)
        began = False
        try:
            async with self._server.wire.stream("/generate", await self._body(prompt, draw, rid)) as stream:
                if stream.status != 200 or not stream.is_events:
                    raise _no_stream(read(await stream.whole(), Event))
                began = True
                await _followed(stream.events(), run, emit)
        finally:
            if began and not run.ended_upstream:
                await self._abort(rid)
        return await self._read(prompt, draw, run.generation())

    async def health(self) -> str:
        """Empty if it is ready, else what is wrong, as a sentence."""
        return await self._server.health()

    async def close(self) -> None:
        """Close all connections."""
        await self._server.close()

    @property
    def _mode(self) -> LogprobsMode:
        return self._server.found.findings.mode

    async def _read(self, prompt: Prompt, draw: Draw, generation: Generation) -> Generation:
        if prompt.read_with is None:
            return generation
        text = text_of(generation, draw, self._vocabulary)
        said = await reading_of(self._server.wire.post, self._server.found.model, prompt, text)
        return msgspec.structs.replace(generation, said=said)

    async def _body(self, prompt: Prompt, draw: Draw, rid: str) -> bytes:
        server = self._server.found.server
        longest = _LONG_ANSWER if draw.max_tokens is None else draw.max_tokens
        repeated = 0 if server.incremental_streaming_output else longest
        if server.skip_tokenizer_init:
            # It refuses stop strings then; Turnstile finds them in what was sampled.
            draw = msgspec.structs.replace(draw, stop=())
        seed = self._seeds() if draw.seed is None else draw.seed
        request = Request(
            rid=rid,
            sampling_params=sampling_of(draw, seed + draw.choice, stream_interval(len(prompt), repeated)),
            top_logprobs_num=draw.top_logprobs,
            image_data=image_data(prompt.media) or msgspec.UNSET,
        )
        return written(await self._prompts.of(draw.affinity, prompt.ids_T), request)

    async def _abort(self, rid: str) -> None:
        # The connection is closed already, which the server sees after up to two seconds; this is only sooner. A
        # server with an admin key of its own refuses it.
        with contextlib.suppress(TurnstileError, TimeoutError):
            async with asyncio.timeout(_ABORT_S):
                body = msgspec.json.encode({"rid": rid, "abort_all": False})
                await self._server.wire.post("/abort_request", body)


async def _followed(events: AsyncGenerator[bytes], run: Run, emit: Emit) -> None:
    """Take events until the answer is whole or there are no more."""
    async for data in events:
        if data == _DONE:
            break
        await run.take(decoded(data, Event), emit)
        if run.is_over:
            break
    if run.ended_upstream:
        # A stream that is read to its end leaves its connection to the next request.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                async for _ in events:
                    pass


def _no_stream(answer: Event) -> EngineError:
    return broken(f"a stream was asked for and one answer came ({answer.output_ids})")
