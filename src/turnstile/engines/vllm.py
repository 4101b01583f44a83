"""vLLM's server: token ids in; ids, log-probabilities, the stop and the weights out (docs/decisions/0022-vllm.md).

Three of its routes take ids. What Turnstile reads itself goes through the one without a parser: generate where it is
open, else completions. What the engine's parsers are to read goes through chat, which reads while it streams, else
through generate, and its ids are read by derender. Prompts with images go through generate, which alone takes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http.client import METHOD_NOT_ALLOWED, NOT_FOUND, UNAUTHORIZED

import msgspec

from turnstile.conversation import Message
from turnstile.engines.address import not_served
from turnstile.engines.base import Capabilities
from turnstile.engines.llamacpp import random_seed
from turnstile.engines.prompt_json import PromptJson
from turnstile.engines.vllm_chat import Chat
from turnstile.engines.vllm_completions import Completions
from turnstile.engines.vllm_derender import Derender
from turnstile.engines.vllm_door import Ask, Door
from turnstile.engines.vllm_generate import Generate
from turnstile.engines.vllm_images import refuse_miscounted
from turnstile.engines.vllm_probe import Found, Opened, probe
from turnstile.engines.vllm_report import capabilities
from turnstile.engines.vllm_run import Ground, Run
from turnstile.engines.vllm_shapes import (
    OWNER,
    Models,
    Tokenized,
    WeightInfo,
    broken,
    detail_of,
    is_closed,
    read,
    refusal,
)
from turnstile.engines.wire import Wire, refused
from turnstile.errors import EngineError
from turnstile.generation import Draw, Emit, Generation, Prompt
from turnstile.tokens import IdRun, Vocabulary

START_LIMIT_S = 300.0
"""The first answers after a start may wait for kernels to be compiled."""
_DONE = b"[DONE]"


async def is_vllm(wire: Wire) -> bool:
    """Whether a vLLM server answers: it says so in `/v1/models`.

    Raises: EngineError `engine_unreachable`; `engine_key_refused`.
    """
    answer = await wire.get("/v1/models")
    if answer.status == UNAUTHORIZED:
        raise refused(f"The engine at {wire.base_url}", answer.status, detail_of(answer.body).message, "")
    if answer.status != 200:
        return False
    try:
        models = msgspec.json.decode(answer.body, type=Models)
    except msgspec.DecodeError:
        return False
    return any(each.owned_by == OWNER for each in models.data)


async def _found(wire: Wire) -> Found:
    answer = await wire.get("/v1/models")
    if answer.status in (NOT_FOUND, METHOD_NOT_ALLOWED):
        raise not_served(wire.base_url, "no /v1/models", "vLLM")
    models = read(answer, Models)
    if not models.data:
        raise not_served(wire.base_url, "/v1/models is empty", "vLLM")
    return await probe(wire, models)


class VllmServer:
    """A vLLM server that answers, and what was seen of it. `speaking` makes it an engine."""

    def __init__(self, wire: Wire, found: Found) -> None:
        self.wire = wire
        self.found = found
        self._capabilities = capabilities(found)

    @classmethod
    async def open(cls, url: str, api_key: str = "") -> VllmServer:
        """Connect, and try what the server can do.

        Raises: CallerError `engine_address` if no vLLM server is there; EngineError `engine_unreachable`,
        `engine_refused` or `engine_broken`.
        """
        wire = Wire.open(url, api_key)
        try:
            async with asyncio.timeout(START_LIMIT_S):
                return cls(wire, await _found(wire))
        except TimeoutError as late:
            await wire.close()
            raise EngineError(
                f"vLLM at {wire.base_url} did not answer a few small requests within {START_LIMIT_S:.0f} s",
                "Look into the engine's own log",
                code="engine_unreachable",
                status=503,
            ) from late
        except BaseException:
            await wire.close()
            raise

    @property
    def capabilities(self) -> Capabilities:
        """What the server was seen to do."""
        return self._capabilities

    @property
    def model_path(self) -> str:
        """The folder or hub name that the server says it loaded; a folder is on its own machine."""
        return self.found.entry.root or ""

    def speaking(self, vocabulary: Vocabulary, seeds: Callable[[], int] = random_seed) -> Vllm:
        """The engine, once the tokenizer is known.

        Args:
            vocabulary: the bytes of each id, to find stop strings and to show alternatives.
            seeds: where seeds come from for draws that name none.
        """
        return Vllm(self, vocabulary, seeds)

    async def tokenize(self, text: str) -> IdRun | None:
        """How the server turns text into ids, special tokens recognised and none added; None if it has no such route.

        Raises: EngineError.
        """
        body = msgspec.json.encode({"model": self.found.entry.id, "prompt": text, "add_special_tokens": False})
        answer = await self.wire.post("/tokenize", body)
        return None if is_closed(answer) else IdRun.of(read(answer, Tokenized).tokens)

    async def chat_ids(self, messages: tuple[Message, ...]) -> IdRun | None:
        """Which ids the server's own chat route would make of messages of text; None if it cannot say."""
        told = [{"role": message.role.value, "content": message.text} for message in messages]
        body = msgspec.json.encode({"model": self.found.entry.id, "messages": told})
        answer = await self.wire.post("/tokenize", body)
        return IdRun.of(read(answer, Tokenized).tokens) if answer.status == 200 else None

    async def health(self) -> str:
        """Empty if it is ready, else what is wrong, as a sentence."""
        return await self.wire.health("vLLM")

    async def close(self) -> None:
        """Close all connections."""
        await self.wire.close()


class Vllm:
    """The engine behind a vLLM server."""

    def __init__(self, server: VllmServer, vocabulary: Vocabulary, seeds: Callable[[], int]) -> None:
        self._server = server
        self._vocabulary = vocabulary
        self._seeds = seeds
        self._prompts = PromptJson()

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; fixed after start."""
        return self._server.capabilities

    async def generate(self, prompt: Prompt, draw: Draw, emit: Emit) -> Generation:
        """Sample one completion; see `Engine.generate`.

        Raises: EchoMismatch, EngineError; CallerError `context_length_exceeded`.
        """
        refuse_miscounted(prompt)
        found = self._server.found
        written = await self._prompts.of(draw.affinity, prompt.ids_T)
        model = prompt.head.model if prompt.head.model in found.models else found.entry.id
        seed = self._seeds() if draw.seed is None else draw.seed
        ask = Ask(prompt, written, draw, seed, model, found.entry.max_model_len)
        door = _door(found, prompt)
        is_chat = isinstance(door, Chat)
        derenders = prompt.read_with is not None and not is_chat
        reader = Derender(self._server.wire, model, prompt, written) if derenders else None
        run = Run(Ground(self._vocabulary, found.measured, is_chat, reader), prompt, draw)
        await self._stream(door, ask, run, emit)
        return run.generation()

    async def policy_label(self) -> str:
        """What the server calls the weights that it runs now; empty if it has no route that says so.

        Raises: EngineError.
        """
        if not self._server.found.has_weight_route:
            return ""
        return read(await self._server.wire.get("/weight_info"), WeightInfo).weight_version

    async def health(self) -> str:
        """Empty if it is ready, else what is wrong, as a sentence."""
        return await self._server.health()

    async def close(self) -> None:
        """Close all connections."""
        await self._server.close()

    async def _stream(self, door: Door, ask: Ask, run: Run, emit: Emit) -> None:
        async with self._server.wire.stream(door.path, door.body(ask)) as stream:
            if stream.status != 200:
                raise refusal(await stream.whole())
            if not stream.is_events:
                raise broken(f"{door.path} answers no stream of events, and one was asked for")
            # To its very end, so that the connection can be used again.
            async for event in stream.events():
                if event != _DONE:
                    await run.take(door.piece(run.without_echo(event, ask.written)), emit)


def _door(found: Found, prompt: Prompt) -> Door:
    """The route for a prompt. Images are refused before, where the server takes none (`Capabilities.images`)."""
    if prompt.media:
        return Generate()
    if prompt.read_with is not None and found.chat is Opened.HONOURED:
        return Chat()
    return Generate() if found.generate is Opened.HONOURED else Completions()
