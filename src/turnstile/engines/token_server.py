"""An engine that anyone can write: token ids in; ids, log-probabilities and the version of the weights out.

The wire is small enough for a hundred lines of server (docs/reference/engine-wire.md). `examples/rl/engine` speaks it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Callable, Iterator

import msgspec

from turnstile.engines.address import not_served
from turnstile.engines.base import WINDOW, Capabilities, Missing, Present
from turnstile.engines.llamacpp import random_seed
from turnstile.engines.prompt_json import PromptJson
from turnstile.engines.token_server_probe import Findings, probe
from turnstile.engines.token_server_run import Run, unstreamed
from turnstile.engines.token_server_shapes import PROTOCOL, Event, Info, Request, decoded, read, unless, written
from turnstile.engines.wire import Wire, WireStream
from turnstile.errors import EngineError
from turnstile.generation import Draw, Emit, Generation, LogprobsMode, Prompt
from turnstile.tokens import IdRun, Vocabulary

START_LIMIT_S = 120.0
"""The first answers after a start may wait for kernels to be compiled."""
_ALWAYS = frozenset({"temperature", "max_tokens", "stop", "stop_ids", "choice"})
"""What every token server honours: stop strings are found here."""
_SOMETIMES = (
    *("seed", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias"),
)
_MEANINGS = {
    LogprobsMode.TEMPERATURE: "measured: at the temperature of sampling, before filters",
    LogprobsMode.PROCESSED: "measured: of the distribution sampled from, filters included",
    LogprobsMode.RAW: "measured: the model's own, before temperature and filters",
    LogprobsMode.UNKNOWN: "what each answer says of them",
}


async def is_token_server(wire: Wire) -> bool:
    """Whether `/info` names this wire. Raises: EngineError `engine_unreachable`."""
    answer = await wire.get("/info")
    if answer.status != 200:
        return False
    try:
        return msgspec.json.decode(answer.body, type=Info).protocol == PROTOCOL
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


class TokenServer:
    """A token server that answers, and what was found out about it. `speaking` makes it an engine."""

    def __init__(self, wire: Wire, info: Info, findings: Findings) -> None:
        self.wire = wire
        self.info = info
        self._capabilities = _capabilities(info, findings)

    @classmethod
    async def open(cls, url: str, api_key: str = "") -> TokenServer:
        """Connect, read `/info`, and try what it says.

        Raises: CallerError `engine_address` if something else answers; EngineError `engine_unreachable`,
        `engine_refused` or `engine_broken`.
        """
        async with contextlib.AsyncExitStack() as undo:
            wire = Wire.open(url, api_key)
            undo.push_async_callback(wire.close)
            info = read(await wire.get("/info"), Info)
            if info.protocol != PROTOCOL:
                raise not_served(wire.base_url, f"/info says `{info.protocol}`, not `{PROTOCOL}`", "a token")
            findings = await _probed(wire, info)
            undo.pop_all()
        return cls(wire, info, findings)

    @property
    def capabilities(self) -> Capabilities:
        """What it was found to do."""
        return self._capabilities

    @property
    def model_path(self) -> str:
        """Empty: it names no file."""
        return ""

    @property
    def tokenizer_sha256(self) -> str:
        """Of the `tokenizer.json` that its ids are of."""
        return self.info.tokenizer_sha256

    def speaking(self, vocabulary: Vocabulary, seeds: Callable[[], int] = random_seed) -> TokenEngine:
        """The engine, once the tokenizer is known.

        Args:
            vocabulary: the bytes of each id, to find stop strings.
            seeds: where seeds come from for draws that name none.
        """
        return TokenEngine(self, vocabulary, seeds)

    async def tokenize(self, text: str) -> IdRun | None:
        """None: it knows ids only; its tokenizer's hash is compared instead."""
        del text

    async def health(self) -> str:
        """Empty if it is ready, else what is wrong, as a sentence."""
        return await self.wire.health("The token server")

    async def close(self) -> None:
        """Close all connections."""
        await self.wire.close()


class TokenEngine:
    """The engine behind a token server."""

    def __init__(self, server: TokenServer, vocabulary: Vocabulary, seeds: Callable[[], int]) -> None:
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

        Raises: EchoMismatch before anything is emitted, if it ran other ids; EngineError; CallerError
        `context_length_exceeded`.
        """
        run = Run(prompt, draw, self._vocabulary)
        async with self._server.wire.stream("/generate", await self._body(prompt, draw)) as stream:
            if stream.status == 200 and stream.is_events:
                await _followed(stream, run, emit)
            else:
                await run.take(unstreamed(read(await stream.whole(), Event)), emit)
        return run.generation()

    async def policy_label(self) -> str:
        """What it calls the weights that it runs now. Raises: EngineError."""
        return str(read(await self._server.wire.get("/info"), Info).weight_version)

    async def health(self) -> str:
        """Empty if it is ready, else what is wrong, as a sentence."""
        return await self._server.health()

    async def close(self) -> None:
        """Close all connections."""
        await self._server.close()

    async def _body(self, prompt: Prompt, draw: Draw) -> bytes:
        seed = self._seeds() if draw.seed is None else draw.seed
        neutral = Draw()
        request = Request(
            temperature=max(0.0, draw.temperature),
            max_tokens=draw.max_tokens,
            stop_ids=tuple(sorted(draw.stop_ids)),
            stream=True,
            seed=seed + draw.choice if "seed" in self.capabilities.honours else msgspec.UNSET,
            top_p=unless(neutral.top_p, draw.top_p),
            top_k=unless(neutral.top_k, draw.top_k),
            min_p=unless(neutral.min_p, draw.min_p),
            presence_penalty=unless(neutral.presence_penalty, draw.presence_penalty),
            frequency_penalty=unless(neutral.frequency_penalty, draw.frequency_penalty),
            repetition_penalty=unless(neutral.repetition_penalty, draw.repetition_penalty),
            logit_bias=unless(neutral.logit_bias, draw.logit_bias),
            images=unless((), tuple(base64.b64encode(each.data).decode() for each in prompt.media)),
        )
        return written(await self._prompts.of(draw.affinity, prompt.ids_T), request)


async def _followed(stream: WireStream, run: Run, emit: Emit) -> None:
    """Take events to the stream's end, so that its connection can be used again.

    Leaving before that closes the connection, which is how an engine is told to stop.
    """
    async for data in stream.events():
        if not run.ended_upstream:
            await run.take(decoded(data, Event), emit)
            if run.is_over and not run.ended_upstream:
                return


async def _probed(wire: Wire, info: Info) -> Findings:
    async def ask(body: bytes) -> Event:
        return read(await wire.post("/generate", body), Event)

    try:
        async with asyncio.timeout(START_LIMIT_S):
            return await probe(ask, info)
    except TimeoutError as late:
        raise EngineError(
            f"The engine at {wire.base_url} did not answer a few small requests within {START_LIMIT_S:.0f} s",
            "Look into the engine's own log",
            code="engine_unreachable",
            status=503,
        ) from late


def _capabilities(info: Info, findings: Findings) -> Capabilities:
    return Capabilities(
        engine=info.engine,
        version=info.version,
        models=(info.model,),
        context_length=info.context_length,
        concurrency=info.concurrency,
        vocab_size=info.vocab_size,
        chat_template=info.chat_template,
        honours=_ALWAYS | (info.honours & frozenset(_SOMETIMES)),
        constraints=frozenset(),
        max_top_logprobs=0,
        echoes_prompt_ids="ids" if findings.echoes_ids else "count",
        images="none" if info.images is None else "collapsed",
        missing=tuple(_missing(info, findings)),
        present=tuple(_present(info, findings)),
    )


def _present(info: Info, findings: Findings) -> Iterator[Present]:
    yield Present("token ids in and out", "/generate, streamed")
    yield Present("stop token", "among the ids: tried at start")
    yield Present("log-probabilities", _MEANINGS[findings.mode])
    if findings.echoes_ids:
        yield Present("prompt ids echoed", "compared before a token is told")
    if findings.tells_weights:
        yield Present("weight versions", "in each answer, for each token")
    if info.banned_ids:
        yield Present("ids that it never samples", f"{len(info.banned_ids)}, such as {info.banned_ids[0]}")
    if info.images is not None:
        yield Present("images", "as they came, one placeholder each")
    if info.context_length is not None:
        yield Present(WINDOW, f"{info.context_length} tokens")


def _missing(info: Info, findings: Findings) -> Iterator[Missing]:
    if not findings.echoes_ids:
        yield Missing(
            "echo of prompt ids",
            "Only the number of ids that ran is checked",
            "Let the engine send `prompt_sha256` or `prompt_ids`",
        )
    if not findings.tells_weights:
        yield Missing(
            "weight versions",
            "Which weights sampled a token is known by announcements only",
            "Let the engine send `weight_version` with the ids",
        )
    if "seed" not in info.honours:
        yield Missing("seeds", "`seed` changes nothing", "Let the engine take `seed`, and list it in `honours`")
