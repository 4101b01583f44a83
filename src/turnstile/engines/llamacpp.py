"""llama.cpp's server: token ids in; ids, log-probabilities and the stop out.

Answers are sampled in short requests that are not streamed, on a leased slot, because the server's own stream
loses the ids and probabilities of tokens that end inside a character. Whether the client streams plays no part,
so a streamed and a whole answer are sampled alike (docs/decisions/0003-llamacpp-exact-streaming.md).
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from http.client import METHOD_NOT_ALLOWED, NOT_FOUND

import msgspec

from turnstile.engines.address import not_served
from turnstile.engines.base import Capabilities, Missing
from turnstile.engines.llamacpp_images import Showing, ShownPrompt
from turnstile.engines.llamacpp_request import RequestBody, WrittenPrompt
from turnstile.engines.llamacpp_run import Ground, Run
from turnstile.engines.llamacpp_shapes import Completion, Models, Props, Tokenized, broken, read
from turnstile.engines.llamacpp_sight import ImageCounts, Sight, Spellings, look
from turnstile.engines.llamacpp_slots import SlotPool
from turnstile.engines.logprob_fill import Letter
from turnstile.engines.prompt_json import PromptJson
from turnstile.engines.wire import Wire, WireAnswer
from turnstile.generation import Draw, Emit, Free, Generation, Prompt
from turnstile.tokens import IdRun, Vocabulary

_HONOURED = frozenset(Draw.__struct_fields__)
MAX_TOP_LOGPROBS = 20
"""As in OpenAI's API; the server would give more."""


def random_seed() -> int:
    """A 32-bit seed for a request that names none."""
    return secrets.randbits(32)


class LlamaServer:
    """A llama.cpp server that answers, and what it says of itself. `speaking` makes it an engine."""

    def __init__(self, wire: Wire, capabilities: Capabilities, model_path: str, sight: Sight | None = None) -> None:
        self.wire = wire
        self.sight = sight
        self._capabilities = capabilities
        self._model_path = model_path

    @classmethod
    async def open(cls, url: str, api_key: str = "", name: str = "llamacpp") -> LlamaServer:
        """Connect, read `/props` and `/v1/models`, and see what the server does around an image.

        Raises: CallerError `engine_address` if another server is there; EngineError `engine_unreachable`,
        `engine_refused` or `engine_broken`.
        """
        async with contextlib.AsyncExitStack() as undo:
            wire = Wire.open(url, api_key)
            undo.push_async_callback(wire.close)
            answer = await wire.get("/props")
            if foreign := _foreign(answer):
                raise not_served(wire.base_url, foreign)
            props = read(answer, Props)
            models = read(await wire.get("/v1/models"), Models)
            seen = await look(wire.post, props)
            capabilities = _capabilities(name, props, models, seen)
            undo.pop_all()
        return cls(wire, capabilities, props.model_path, seen if isinstance(seen, Sight) else None)

    @property
    def capabilities(self) -> Capabilities:
        """What the server says it can do."""
        return self._capabilities

    @property
    def model_path(self) -> str:
        """Where the server says its gguf lies, on its own machine; empty if it does not say."""
        return self._model_path

    def speaking(self, vocabulary: Vocabulary, seeds: Callable[[], int] = random_seed) -> LlamaCpp:
        """The engine, once the tokenizer is known.

        Args:
            vocabulary: the bytes of each id, to place probabilities and to find stop strings.
            seeds: where seeds come from for draws that name none.
        """
        return LlamaCpp(self, vocabulary, seeds)

    async def tokenize(self, text: str) -> IdRun | None:
        """How the server turns text into ids, special tokens recognised and none added; None if it has no such route.

        Raises: EngineError.
        """
        body = msgspec.json.encode({"content": text, "add_special": False, "parse_special": True})
        answer = await self.wire.post("/tokenize", body)
        return None if answer.status == NOT_FOUND else IdRun.of(read(answer, Tokenized).tokens)

    async def health(self) -> str:
        """Empty if it is ready, else what is wrong, as a sentence."""
        return await self.wire.health("llama.cpp")

    async def close(self) -> None:
        """Close all connections."""
        await self.wire.close()


class LlamaCpp:
    """The engine behind a llama.cpp server."""

    def __init__(self, server: LlamaServer, vocabulary: Vocabulary, seeds: Callable[[], int]) -> None:
        self._server = server
        self._seeds = seeds
        self._slots = SlotPool(server.capabilities.concurrency or 1)
        self._prompts = PromptJson()
        post, sight = server.wire.post, server.sight
        self._showing = None if sight is None else Showing(sight, vocabulary, ImageCounts(post, sight), Spellings(post))
        self._ground = Ground(self._complete, vocabulary, Letter(vocabulary), server.capabilities.context_length)

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; fixed after start."""
        return self._server.capabilities

    async def generate(self, prompt: Prompt, draw: Draw, emit: Emit) -> Generation:
        """Sample one completion; see `Engine.generate`.

        Raises: EngineError; CallerError `context_length_exceeded`, and as `Showing.of` for a prompt with images.
        """
        seed = self._seeds() if draw.seed is None else draw.seed
        shown = await self._shown(prompt)
        async with self._slots.lease(draw.affinity) as lease:
            if shown is None:
                written = WrittenPrompt(await self._prompts.of(draw.affinity, prompt.ids_T), len(prompt))
            else:
                written = WrittenPrompt(shown.json, shown.length, shown.echo)
            run = Run(self._ground, RequestBody(written, draw, lease, seed), draw)
            if isinstance(draw.constraint, Free) and shown is None:
                await run.in_segments(emit)
            else:
                await run.at_once(emit)
            generation = run.generation(seed)
        return generation if shown is None else msgspec.structs.replace(generation, expanded=shown.expanded)

    async def health(self) -> str:
        """Empty if it is ready, else what is wrong, as a sentence."""
        return await self._server.health()

    async def close(self) -> None:
        """Close all connections."""
        await self._server.close()

    async def _shown(self, prompt: Prompt) -> ShownPrompt | None:
        if not prompt.media or prompt.placeholder_id is None or self._showing is None:
            return None
        # A server that was started again has another marker.
        props = read(await self._server.wire.get("/props"), Props)
        return await self._showing.of(prompt, prompt.placeholder_id, props.media_marker)

    async def _complete(self, body: bytes) -> Completion:
        return read(await self._server.wire.post("/completion", body), Completion)


def _foreign(answer: WireAnswer) -> str:
    """How an answer to `/props` shows that it is no llama.cpp server's; empty if it may be one.

    Its errors are JSON too, and a gateway's page with a status from 500 on may stand for a server that is down.
    """
    if answer.status in (NOT_FOUND, METHOD_NOT_ALLOWED):
        return "no /props"
    if 300 <= answer.status < 400:
        return f"status {answer.status} for /props"
    is_object = answer.body.lstrip().startswith(b"{")
    return "" if is_object or answer.status >= 500 else "/props is no JSON object"


def _capabilities(name: str, props: Props, models: Models, seen: Sight | Missing | None) -> Capabilities:
    if props.total_slots < 1:
        raise broken(f"/props says total_slots {props.total_slots}")
    served = dict.fromkeys(served for entry in models.data for served in (entry.id, *entry.aliases))
    return Capabilities(
        engine=name,
        version=props.build_info,
        models=tuple(served),
        context_length=props.default_generation_settings.n_ctx or None,
        concurrency=props.total_slots,
        vocab_size=next((entry.meta.n_vocab for entry in models.data if entry.meta), None),
        chat_template=props.chat_template,
        honours=_HONOURED,
        constraints=frozenset({"schema", "grammar"}),
        max_top_logprobs=MAX_TOP_LOGPROBS,
        echoes_prompt_ids="count",
        images="collapsed" if isinstance(seen, Sight) else "none",
        missing=(seen,) if isinstance(seen, Missing) else (),
    )
