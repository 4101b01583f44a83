"""What a vLLM server really does, asked at start: a dozen requests of a few ids each.

Routes lie in silence (chat may ignore the ids that it is given, a parser may swallow ids), and what log-probabilities
mean is in no answer. So each thing is tried once, and what was not seen is not believed.
"""

from __future__ import annotations

import base64
import enum
import re
import struct
import zlib
from collections.abc import Sequence

import msgspec

from turnstile.conversation import ToolMode
from turnstile.engines.vllm_chat import Chat
from turnstile.engines.vllm_completions import Completions
from turnstile.engines.vllm_door import Ask, Door, Piece, Scored
from turnstile.engines.vllm_generate import Generate
from turnstile.engines.vllm_measure import PROBE_TEMPERATURE, Places, is_logits, measured
from turnstile.engines.vllm_shapes import (
    ModelEntry,
    Models,
    Tokenized,
    Version,
    WeightInfo,
    decoded,
    is_closed,
    read,
    refusal,
)
from turnstile.engines.wire import Wire, WireAnswer
from turnstile.errors import EngineError, TurnstileError
from turnstile.generation import Draw, GrammarConstraint, Head, LogprobsMode, Prompt, Root
from turnstile.reasons import RootReason
from turnstile.tokens import NO_IDS, IdRun

_TEXT = "The quick brown fox jumps over the lazy dog, and then"
_IDS = (1, 2, 3, 4)
"""For a server that does not tokenize."""
_WEATHER = '{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{}}}}'
_TOP = 20
_MOST = re.compile(rb"max allowed: (\d+)")
_IMAGE_PIXELS = 56
_LIMIT = 8


class Opened(enum.StrEnum):
    """What a door was seen to do with ids."""

    HONOURED = "honoured"
    """It ran them and says so."""
    IGNORED = "ignored"
    """It ran something else."""
    CLOSED = "closed"


class Found(msgspec.Struct, frozen=True):
    """What was seen."""

    version: str
    entry: ModelEntry
    """The model that is asked for."""
    models: tuple[str, ...]
    generate: Opened
    completions: Opened
    chat: Opened
    measured: LogprobsMode
    max_top_logprobs: int
    stop_in_ids: bool
    """Whether a sampled stop token is among the ids."""
    constrains: bool
    """Whether a grammar holds from the first id on."""
    parses: bool
    """Whether it has a parser for tool calls."""
    derenders: bool
    """Whether that parser can be asked on its own."""
    has_spans: bool
    """Whether answers say which weights sampled them."""
    has_weight_route: bool
    images: bool


async def probe(wire: Wire, models: Models) -> Found:
    """Ask a server that `/v1/models` says is vLLM's.

    Raises: EngineError `engine_unreachable` or `engine_refused`; EngineError `engine_broken` if neither ids door is
    open, or if it answers logits for log-probabilities.
    """
    entry = next((each for each in models.data if each.parent is None), models.data[0])
    prober = _Prober(wire, entry, await _sample_ids(wire, entry.id))
    generate, completions = await prober.opened(Generate()), await prober.opened(Completions())
    if Opened.HONOURED not in (generate, completions):
        raise EngineError(
            "vLLM takes token ids neither at /inference/v1/generate nor at /v1/completions",
            "Serve a model that generates text, with one of these routes open",
            code="engine_refused",
        )
    is_open = generate is Opened.HONOURED
    door: Door = Generate() if is_open else Completions()
    top = await prober.most_alternatives(door)
    numbers = await prober.measured(door, top)
    return Found(
        version=read(await wire.get("/version"), Version).version,
        entry=entry,
        models=tuple(each.id for each in models.data),
        generate=generate,
        completions=completions,
        chat=await prober.opened(Chat()),
        measured=numbers,
        max_top_logprobs=top,
        stop_in_ids=await prober.keeps_stop(door),
        constrains=await prober.constrains(door),
        parses=await prober.parses(),
        derenders=is_open and await prober.derenders(),
        has_spans=is_open and await prober.has_spans(),
        has_weight_route=await _has_weight_route(wire),
        images=is_open and await prober.takes_images(),
    )


async def _sample_ids(wire: Wire, model: str) -> IdRun:
    body = msgspec.json.encode({"model": model, "prompt": _TEXT, "add_special_tokens": False})
    answer = await wire.post("/tokenize", body)
    tokens = read(answer, Tokenized).tokens[:_LIMIT] if answer.status == 200 else []
    return IdRun.of(tokens or _IDS)


async def _has_weight_route(wire: Wire) -> bool:
    answer = await wire.get("/weight_info")
    return answer.status == 200 and bool(decoded(answer.body, WeightInfo).weight_version)


class _Prober:
    def __init__(self, wire: Wire, entry: ModelEntry, ids: IdRun) -> None:
        self._wire = wire
        self._entry = entry
        self._ids = ids

    async def opened(self, door: Door) -> Opened:
        """What a door does with ids."""
        answer = await self._asked(door, self._ids, Draw(temperature=0.0, max_tokens=1))
        if isinstance(answer, WireAnswer):
            # Chat needs a template, and some models have none; what is refused is not used.
            if answer.status in (401, 500, 502, 503, 504):
                raise refusal(answer)
            return Opened.CLOSED
        return Opened.HONOURED if _echo(answer) == self._ids else Opened.IGNORED

    async def most_alternatives(self, door: Door) -> int:
        """How many alternatives a token may have, up to OpenAI's limit; a server that gives fewer says how many."""
        answer = await self._asked(door, self._ids, Draw(temperature=0.0, max_tokens=1, top_logprobs=_TOP))
        if not isinstance(answer, WireAnswer):
            return _TOP
        most = _MOST.search(answer.body)
        return int(most[1]) if most else 0

    async def measured(self, door: Door, top: int) -> LogprobsMode:
        """What its log-probabilities mean: the same places at a low temperature and as a prompt's, which are raw.

        Raises: EngineError `engine_broken` if they are logits.
        """
        draw = Draw(temperature=PROBE_TEMPERATURE, seed=1, max_tokens=_LIMIT, top_logprobs=top)
        answer = await self._asked(door, self._ids, draw)
        if isinstance(answer, WireAnswer):
            return LogprobsMode.UNKNOWN
        sampled = [token_id for piece in answer for token_id in piece.ids]
        scored = [each for piece in answer for each in piece.scored or ()]
        raw = await self._prompt_scores(door, self._ids + IdRun.of(sampled), top)
        if len(scored) != len(sampled) or raw is None:
            return LogprobsMode.UNKNOWN
        places: Places = [
            (_numbers(one), row) for one, row in zip(scored, raw[len(self._ids) :], strict=False) if row is not None
        ]
        if is_logits(places):
            raise EngineError(
                "vLLM answers logits where log-probabilities are asked for",
                "Start it with --logprobs-mode processed_logprobs",
                code="engine_broken",
            )
        return measured(places)

    async def keeps_stop(self, door: Door) -> bool:
        """Whether a stop token that was sampled is among the ids."""
        first = await self._asked(door, self._ids, Draw(temperature=0.0, max_tokens=1))
        if isinstance(first, WireAnswer) or not (ids := _ids(first)):
            return False
        again = await self._asked(door, self._ids, Draw(temperature=0.0, max_tokens=2, stop_ids=frozenset(ids[:1])))
        return not isinstance(again, WireAnswer) and _ids(again)[:1] == ids[:1]

    async def constrains(self, door: Door) -> bool:
        """Whether a grammar holds from the first id on: where a reasoning parser runs it may wait for its end."""
        draw = Draw(temperature=0.0, max_tokens=_LIMIT, constraint=GrammarConstraint('root ::= "ab"\n'))
        answer = await self._asked(door, self._ids, draw)
        if isinstance(answer, WireAnswer):
            return False
        body = msgspec.json.encode({"model": self._entry.id, "tokens": _ids(answer)})
        text = await self._wire.post("/detokenize", body)
        return text.status == 200 and decoded(text.body, _Detokenized).prompt.startswith("ab")

    async def parses(self) -> bool:
        """Whether chat takes tools that the model may call: without a parser for them it refuses."""
        prompt = self._prompt(self._ids, tools=(_WEATHER,))
        return not isinstance(await self._asked_for(Chat(), prompt, Draw(temperature=0.0, max_tokens=1)), WireAnswer)

    async def derenders(self) -> bool:
        """Whether the parsers can be asked on their own."""
        answer = await self._wire.post("/v1/chat/completions/derender", b"{}")
        return not is_closed(answer)

    async def has_spans(self) -> bool:
        """Whether an answer says which weights sampled it."""
        answer = await self._asked(Generate(), self._ids, Draw(temperature=0.0, max_tokens=1))
        return not isinstance(answer, WireAnswer) and any(piece.spans for piece in answer)

    async def takes_images(self) -> bool:
        """Whether the model is one that sees: its server renders a message with an image."""
        url = f"data:image/png;base64,{base64.b64encode(_png(_IMAGE_PIXELS)).decode()}"
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "?"}]
        body = {"model": self._entry.id, "messages": [{"role": "user", "content": content}]}
        return (await self._wire.post("/tokenize", msgspec.json.encode(body))).status == 200

    def _prompt(self, ids: IdRun, tools: tuple[str, ...] = ()) -> Prompt:
        head = Head("", self._entry.id, "", 0, "", "{}", tools)
        return Prompt(head, None, NO_IDS, ids, (), Root(RootReason.FIRST_CALL), read_with=ToolMode.AUTO)

    async def _asked(self, door: Door, ids: IdRun, draw: Draw) -> list[Piece] | WireAnswer:
        return await self._asked_for(door, self._prompt(ids), draw)

    async def _asked_for(self, door: Door, prompt: Prompt, draw: Draw) -> list[Piece] | WireAnswer:
        """All pieces of an answer, or the refusal. Raises: EngineError `engine_unreachable` or `engine_broken`."""
        written = msgspec.json.encode(prompt.ids_T.tolist())[1:-1]
        ask = Ask(prompt, written, draw, draw.seed or 0, self._entry.id, self._entry.max_model_len)
        pieces: list[Piece] = []
        async with self._wire.stream(door.path, door.body(ask)) as stream:
            if stream.status != 200:
                return await stream.whole()
            async for event in stream.events():
                if event != b"[DONE]":
                    try:
                        pieces.append(door.piece(event))
                    except TurnstileError as problem:
                        return WireAnswer(problem.status, str(problem).encode())
        return pieces

    async def _prompt_scores(self, door: Door, ids: IdRun, top: int) -> list[dict[int, float] | None] | None:
        parameters = {"temperature": 0.0, "max_tokens": 1, "prompt_logprobs": top}
        body = (
            {"model": self._entry.id, "token_ids": ids.tolist(), "sampling_params": parameters}
            if isinstance(door, Generate)
            else {"model": self._entry.id, "prompt": ids.tolist(), **parameters}
        )
        answer = await self._wire.post(door.path, msgspec.json.encode(body))
        if answer.status != 200:
            return None
        scores = decoded(answer.body, _PromptScores)
        rows = scores.prompt_logprobs or (scores.choices[0].prompt_logprobs if scores.choices else None)
        return None if rows is None else [_by_id(row) for row in rows]


class _Score(msgspec.Struct, frozen=True):
    logprob: float


class _ScoredChoice(msgspec.Struct, frozen=True):
    prompt_logprobs: list[dict[str, _Score] | None] | None = None


class _PromptScores(msgspec.Struct, frozen=True):
    choices: tuple[_ScoredChoice, ...] = ()
    prompt_logprobs: list[dict[str, _Score] | None] | None = None


class _Detokenized(msgspec.Struct, frozen=True):
    prompt: str


def _by_id(row: dict[str, _Score] | None) -> dict[int, float] | None:
    return None if row is None else {int(token_id): each.logprob for token_id, each in row.items()}


def _ids(pieces: Sequence[Piece]) -> list[int]:
    return [token_id for piece in pieces for token_id in piece.ids]


def _echo(pieces: Sequence[Piece]) -> IdRun | None:
    return next((IdRun.of(piece.echo) for piece in pieces if piece.echo is not None), None)


def _numbers(scored: Scored) -> dict[int, float]:
    own = {} if scored.logprob is None else {scored.token_id: scored.logprob}
    return dict(scored.top) | own


def _png(side: int) -> bytes:
    """A grey square."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = (b"\0" + b"\x80\x80\x80" * side) * side
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
