"""Engines for one contract: the real ones that can be had, and wire fakes of each kind, all behind one face.

Real llama.cpp always runs, with the packaged small model, and the engine of the examples where TRL's environment is
there. `TURNSTILE_ENGINES=real`, which `make engines` sets, adds real vLLM and a llama.cpp with the same weights.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

import turnstile.engines.embedded as embedded
from turnstile.conversation import ToolMode
from turnstile.engines import Engine, LlamaServer, SglangServer, TokenServer, cache_home
from turnstile.engines.embedded_child import ChildReport, ChildSettings
from turnstile.engines.smollm import MODEL_NAME, model_file
from turnstile.engines.vllm import VllmServer
from turnstile.engines.wire import Wire
from turnstile.exchange.checks import Verdict, verify
from turnstile.generation import Delta, Draw, Generation, Head, Prompt, Root
from turnstile.reasons import RootReason
from turnstile.templates.gguf import tokenizer_files
from turnstile.templates.tokenizer import Tokenizer
from turnstile.tokens import IdRun, Vocabulary

HAS_ALL = os.environ.get("TURNSTILE_ENGINES") == "real"
SEED = 7
CONTEXT = 256
"""Of the real llama.cpp and of the fakes."""


class Bytes:
    """A vocabulary: ids 0 and 1 are control tokens, and id 2 + b is the byte b."""

    rows = (b"<s>", b"</s>", *(bytes([byte]) for byte in range(256)))

    @property
    def size(self) -> int:
        return len(self.rows)

    def token_bytes(self, token_id: int) -> bytes:
        return self.rows[token_id]

    def is_special(self, token_id: int) -> bool:
        return token_id < 2

    def spell(self, text: str) -> list[int]:
        return [2 + byte for byte in text.encode()]


class Answered:
    """What an engine gave for one draw, and what the exchange makes of it."""

    def __init__(self, generation: Generation, deltas: list[Delta], verdict: Verdict) -> None:
        self.generation = generation
        self.deltas = deltas
        self.verdict = verdict
        self.ids = generation.ids_S.tolist()
        self.logprobs = generation.logprobs_S.tolist() if generation.logprobs_S is not None else None


class Subject:
    """One engine under the contract."""

    name = ""
    context = CONTEXT
    look_again_s = 0.05
    near = 5e-3
    """How far its numbers may be from the true ones: llama.cpp and vLLM, which compute in different orders, agree to
    this on one set of weights in float32."""

    def __init__(self, engine: Engine, vocabulary: Vocabulary, stop_id: int) -> None:
        self.engine = engine
        self.vocabulary = vocabulary
        self.stop_id = stop_id

    def prompt(self, ids: Sequence[int]) -> Prompt:
        head = Head("fingerprint", "", "tokenizer", 0, "template", "{}", ())
        return Prompt(head, None, IdRun(), IdRun.of(ids), (), Root(RootReason.FIRST_CALL))

    async def ask(self, ids: Sequence[int], draw: Draw | None = None) -> Answered:
        """Sample once, and check it as the exchange does."""
        deltas: list[Delta] = []

        async def emit(delta: Delta) -> None:
            deltas.append(delta)

        draw = draw or Draw(stop_ids=frozenset({self.stop_id}))
        prompt = self.prompt(ids)
        generation = await self.engine.generate(prompt, draw, emit)
        return Answered(generation, deltas, verify(prompt, draw, generation, self.vocabulary))

    def text(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.vocabulary.token_bytes, ids)).decode(errors="replace")

    def question(self, times: int = 1) -> list[int]:
        """A prompt whose answer is uncertain, to be asked so many times."""
        raise NotImplementedError

    def endless(self) -> tuple[list[int], Draw]:
        """A prompt and draw whose answer fills the context."""
        raise NotImplementedError

    async def row(self, ids: Sequence[int], temperature: float) -> dict[int, float]:
        """Log-probabilities behind ids, known apart from the answers."""
        raise NotImplementedError

    async def is_idle(self) -> bool:
        """Whether the engine samples nothing."""
        raise NotImplementedError


# --- Real engines -----------------------------------------------------------------------------------------------------


def scaled(row: dict[int, float], temperature: float) -> dict[int, float]:
    """log-softmax(logits / temperature) in double precision, from numbers that are off by a constant at most."""
    heated = {token: value / temperature for token, value in row.items()}
    highest = max(heated.values())
    total = highest + math.log(math.fsum(math.exp(value - highest) for value in heated.values()))
    return {token: value - total for token, value in heated.items()}


ROWS: dict[tuple[str | int, ...], dict[int, float]] = {}


class Real(Subject):
    """A real engine; the numbers of a whole row come from llama.cpp with the same weights, before its samplers."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, oracle: Wire, wire: Wire) -> None:
        stop = tokenizer.id_of("<|im_end|>")
        assert stop is not None
        super().__init__(engine, tokenizer, stop)
        self._tokenizer = tokenizer
        self._oracle = oracle
        self.wire = wire
        self.context = engine.capabilities.context_length or 0

    def ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text).tolist()

    def question(self, times: int = 1) -> list[int]:
        asked = "<|im_start|>user\nwhich colours now<|im_end|>\n"
        return self.ids(f"{asked}<|im_start|>assistant\n<think>\nColours.\n</think>\n\n")

    def endless(self) -> tuple[list[int], Draw]:
        ids = self.ids("<|im_start|>user\nsing<|im_end|>\n<|im_start|>assistant\n")
        return ids, Draw(seed=SEED, logit_bias=((self.stop_id, -100.0),))

    async def row(self, ids: Sequence[int], temperature: float) -> dict[int, float]:
        # A row is megabytes and seconds, and the engines with the same weights are asked for the same ones.
        key = (self._oracle.base_url, *ids)
        if key not in ROWS:
            ROWS[key] = await self._raw_row(ids)
        return scaled(ROWS[key], temperature)

    async def _raw_row(self, ids: Sequence[int]) -> dict[int, float]:
        letter = self.ids("b")[0]
        size = self._tokenizer.size
        body = {"prompt": list(ids), "n_predict": 1, "n_probs": size, "logit_bias": [[letter, 1000.0]]}
        answer = json.loads((await self._oracle.post("/completion", json.dumps(body).encode())).body)
        top = answer["completion_probabilities"][0]["top_logprobs"]
        return {one["id"]: one["logprob"] for one in top if one["logprob"] > -1e30}


class RealLlamacpp(Real):
    name = "llama.cpp"
    look_again_s = 1.5
    """It looks for closed connections when no result was ready for a second, so asking often keeps it busy."""

    async def is_idle(self) -> bool:
        return not any(slot["is_processing"] for slot in json.loads((await self.wire.get("/slots")).body))


class RealQuantised(RealLlamacpp):
    """Its numbers depend on what is in its cache and what shares its batch."""

    near = 0.1

    async def row(self, ids: Sequence[int], temperature: float) -> dict[int, float]:
        return scaled(await self._raw_row(ids), temperature)


class RealVllm(Real):
    name = "vLLM"

    async def is_idle(self) -> bool:
        lines = (await self.wire.get("/metrics")).body.decode().splitlines()
        counts = [
            line for line in lines if line.startswith(("vllm:num_requests_running", "vllm:num_requests_waiting{"))
        ]
        assert counts
        return all(float(line.rpartition(" ")[2]) == 0 for line in counts)


class RealVllmChat(RealVllm):
    """Answers that the engine's own parsers read."""

    name = "vLLM chat"

    def prompt(self, ids: Sequence[int]) -> Prompt:
        return msgspec.structs.replace(super().prompt(ids), read_with=ToolMode.AUTO)


class RealTokenServer(Real):
    """The engine of the examples; its rows come from a plain forward of the same weights."""

    name = "token server"

    def __init__(self, engine: Engine, tokenizer: Tokenizer, plain: Any, wire: Wire) -> None:
        super().__init__(engine, tokenizer, wire, wire)
        self._plain = plain

    async def row(self, ids: Sequence[int], temperature: float) -> dict[int, float]:
        (row,) = await asyncio.to_thread(self._plain.ask, ids=list(ids), start=len(ids))
        return scaled(dict(enumerate(row)), temperature)

    async def is_idle(self) -> bool:
        return json.loads((await self.wire.get("/health")).body)["running"] == 0


class Running(msgspec.Struct, frozen=True):
    """A real server."""

    url: str
    key: str
    tokenizer_json: str


@pytest.fixture(scope="session")
def smollm() -> Iterator[Running]:
    """llama.cpp with SmolLM2."""
    model = asyncio.run(model_file(cache_home()))
    settings = ChildSettings(str(model), MODEL_NAME, secrets.token_hex(8), context=CONTEXT, slots=2, threads=1)
    program = Path(embedded.__file__).with_name("embedded_child.py")
    with subprocess.Popen(
        [sys.executable, "-P", str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(msgspec.json.encode(settings) + b"\n")
        child.stdin.flush()
        report = msgspec.json.decode(child.stdout.readline(), type=ChildReport)
        assert report.url, report.error
        yield Running(report.url, settings.api_key, tokenizer_files(model.read_bytes()).tokenizer_json)
        child.stdin.close()
        child.wait(10)


@pytest.fixture(scope="session")
def tiny_vllm(real_vllm: Any, tiny_tokenizer_json: str) -> Running:
    """vLLM with the tiny Qwen3."""
    return Running(real_vllm.url, real_vllm.KEY, tiny_tokenizer_json)


@pytest.fixture(scope="session")
def tiny_llamacpp(real_llamacpp: Any, tiny_tokenizer_json: str) -> Running:
    """llama.cpp with the same weights."""
    return Running(real_llamacpp.url, real_llamacpp.KEY, tiny_tokenizer_json)


tokenizer_of = cache(Tokenizer.from_json)


@asynccontextmanager
async def real(kind: type[Real], running: Running, oracle: Running) -> AsyncGenerator[Subject]:
    async with AsyncExitStack() as stack:
        tokenizer = tokenizer_of(running.tokenizer_json)
        wires = [Wire.open(each.url, each.key) for each in (oracle, running)]
        for wire in wires:
            stack.push_async_callback(wire.close)
        opener = LlamaServer if issubclass(kind, RealLlamacpp) else VllmServer
        engine = (await opener.open(running.url, running.key)).speaking(tokenizer)
        stack.push_async_callback(engine.close)
        yield kind(engine, tokenizer, *wires)


@asynccontextmanager
async def real_token_server(served: Any, plain: Any) -> AsyncGenerator[Subject]:
    async with AsyncExitStack() as stack:
        tokenizer = tokenizer_of((plain.folder / "tokenizer.json").read_text(encoding="utf-8"))
        wire = Wire.open(served.url)
        stack.push_async_callback(wire.close)
        engine = (await TokenServer.open(served.url)).speaking(tokenizer)
        stack.push_async_callback(engine.close)
        yield RealTokenServer(engine, tokenizer, plain, wire)


# --- Fakes ------------------------------------------------------------------------------------------------------------


class Faked(Subject):
    """A fake engine of one kind."""

    module = ""
    make = ""
    faults: dict[str, str] = {}
    """Names of the contract's troubles that the fake calls otherwise."""
    harmless: frozenset[str] = frozenset()
    """Troubles that its wire has no place for, as it is set up."""
    requests_an_answer = 1
    settings: dict[str, Any] = {}

    def __init__(self, engine: Engine, fake: Any, life: AsyncExitStack) -> None:
        super().__init__(engine, Bytes(), 1)
        self.fake = fake
        self._life = life

    @asynccontextmanager
    async def down(self) -> AsyncGenerator[None]:
        """Nothing listens at the engine's address, and all its connections are closed, until the block is left."""
        port = self.fake.port
        await self._life.aclose()
        yield
        await self._life.enter_async_context(self.fake.serving(port))

    @classmethod
    def module_of(cls) -> Any:
        return import_module(cls.module)

    @classmethod
    async def open(cls, url: str) -> Engine:
        raise NotImplementedError

    @classmethod
    def can(cls, trouble: str) -> bool:
        known = cls.faults.get(trouble, trouble) in cls.module_of().Fault.__members__
        return known and trouble not in cls.harmless

    def trouble(self, name: str, times: int = 1) -> None:
        """Let the next requests go wrong."""
        self.fake.faults.extend([self.module_of().Fault[self.faults.get(name, name)]] * times)

    def forget(self) -> None:
        """Drop what nothing asked for."""
        self.fake.faults.clear()
        self.fake._scripted.clear()

    def says(self, text: str, ends: str = "</s>") -> list[int]:
        """What the next request is answered with."""
        ids = Bytes().spell(text) + [1] * (ends == "</s>")
        self.fake.script(ids)
        return ids

    def question(self, times: int = 1) -> list[int]:
        for _ in range(times):
            self.says("Blue, blue.")
        return Bytes().spell("Q:")

    def endless(self) -> tuple[list[int], Draw]:
        self.says("la", ends="")
        self.fake.token_delay_s = 0.02
        return Bytes().spell("Q:"), Draw(stop_ids=frozenset({1}))

    async def row(self, ids: Sequence[int], temperature: float) -> dict[int, float]:
        return {token: self.fake.logprob(token, temperature) for token in range(Bytes().size)}

    async def is_idle(self) -> bool:
        return self.gone() > 0

    def gone(self) -> int:
        """Requests whose client went away."""
        return self.fake.gone


class FakeLlamacpp(Faked):
    name = "llama.cpp fake"
    module = "llamacpp_fake"
    make = "LlamaFake"
    requests_an_answer = 6
    faults = {
        "CUT": "HALF_BODY",
        "BUSY": "BUSY_429",
        "ERROR_EVENT": "ERROR_BODY",
        "NO_LOGPROBS": "NO_PROBABILITIES",
        "FOREIGN_LOGPROBS": "FOREIGN_PROBABILITIES",
        "NULL_LOGPROBS": "NULL_PROBABILITY",
        "POSITIVE": "PROBABILITY_ABOVE_ONE",
        "ALL_ZERO": "CERTAIN",
        "OTHER_PROMPT": "WRONG_PROMPT_LENGTH",
        "UNKNOWN_FINISH": "UNKNOWN_STOP",
    }

    @classmethod
    async def open(cls, url: str) -> Engine:
        return (await LlamaServer.open(url)).speaking(Bytes(), seeds=lambda: SEED)

    def gone(self) -> int:
        return self.fake.aborted


class FakeVllm(Faked):
    name = "vLLM fake"
    module = "vllm_fake"
    make = "VllmFake"
    faults = {"BUSY": "BUSY_503"}
    harmless = frozenset({"NO_IDS", "LOST_IDS"})

    @classmethod
    async def open(cls, url: str) -> Engine:
        return (await VllmServer.open(url)).speaking(Bytes(), seeds=lambda: SEED)


class FakeVllmCompletions(FakeVllm):
    name = "vLLM fake, scale-out off"
    settings = {"scale_out": False, "dev_mode": False}
    harmless = frozenset({"LOST_IDS", "GAP_IN_SPANS"})


class FakeVllmChat(FakeVllm):
    name = "vLLM fake, chat"
    harmless = frozenset({"GAP_IN_SPANS"})

    def prompt(self, ids: Sequence[int]) -> Prompt:
        return msgspec.structs.replace(super().prompt(ids), read_with=ToolMode.AUTO)


class FakeSglang(Faked):
    name = "SGLang fake"
    module = "sglang_fake"
    make = "SglangFake"
    faults = {"NULL_LOGPROBS": "NOT_FINITE", "OTHER_PROMPT": "RETOKENIZED"}

    @classmethod
    async def open(cls, url: str) -> Engine:
        return (await SglangServer.open(url)).speaking(Bytes(), seeds=lambda: SEED)


class FakeSglangIncremental(FakeSglang):
    name = "SGLang fake, incremental"
    settings = {"incremental": True}
    harmless = frozenset({"CHANGED_IDS", "SHORT_LOGPROBS"})


class FakeTokenServer(Faked):
    name = "token server fake"
    module = "token_server_fake"
    make = "TokenServerFake"

    @classmethod
    async def open(cls, url: str) -> Engine:
        return (await TokenServer.open(url)).speaking(Bytes(), seeds=lambda: SEED)


FAKES = (
    *(FakeLlamacpp, FakeVllm, FakeVllmCompletions, FakeVllmChat, FakeSglang, FakeSglangIncremental),
    FakeTokenServer,
)
REALS: tuple[tuple[str, type[Real], str, str], ...] = (
    ("llama.cpp SmolLM2", RealQuantised, "smollm", "smollm"),
    *(
        (
            ("vLLM", RealVllm, "tiny_vllm", "tiny_llamacpp"),
            ("vLLM chat", RealVllmChat, "tiny_vllm", "tiny_llamacpp"),
            ("llama.cpp tiny", RealLlamacpp, "tiny_llamacpp", "tiny_llamacpp"),
        )
        if HAS_ALL
        else ()
    ),
)


@asynccontextmanager
async def faked(kind: type[Faked]) -> AsyncGenerator[Faked]:
    fake = getattr(kind.module_of(), kind.make)(
        Bytes.rows, special=frozenset({0, 1}), eos=frozenset({1}), context=CONTEXT, **kind.settings
    )
    async with AsyncExitStack() as life:
        engine = await kind.open(await life.enter_async_context(fake.serving()))
        fake.requests.clear()
        yield kind(engine, fake, life)
        await engine.close()


TOKEN_SERVER = pytest.param(RealTokenServer.name, marks=pytest.mark.timeout(600))
"""Two processes import torch first, which takes minutes where others compute too."""


@pytest.fixture(params=[*(name for name, *_ in REALS), TOKEN_SERVER, *(kind.name for kind in FAKES)])
def opened(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Subject]:
    """Each engine, started and not connected to yet."""
    if request.param == RealTokenServer.name:
        return real_token_server(request.getfixturevalue("served_text"), request.getfixturevalue("plain_text"))
    for name, kind, running, oracle in REALS:
        if name == request.param:
            return real(kind, request.getfixturevalue(running), request.getfixturevalue(oracle))
    return faked(next(kind for kind in FAKES if kind.name == request.param))


@pytest.fixture
async def subject(opened: AbstractAsyncContextManager[Subject]) -> AsyncIterator[Subject]:
    """Each engine."""
    async with opened as found:
        yield found


@pytest.fixture(params=[kind.name for kind in FAKES])
async def liar(request: pytest.FixtureRequest) -> AsyncIterator[Faked]:
    """Each fake, which can be made to go wrong."""
    async with faked(next(kind for kind in FAKES if kind.name == request.param)) as found:
        yield found
