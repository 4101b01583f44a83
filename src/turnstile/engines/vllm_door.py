"""What the routes of vLLM that take token ids have in common: how a draw is written, and what an event may bring.

A server's `generation_config` fills in whatever sampling field is left out, so every one is sent, the neutral ones
too (`to_sampling_params` in vLLM's `openai/*/protocol.py`).
"""

from __future__ import annotations

from typing import Protocol, TypeVar, assert_never

import msgspec

from turnstile.conversation import ReplyDelta
from turnstile.engines.vllm_shapes import Counts, PlaceholderRange, WeightSpan, broken, decoded, detail_of, refused
from turnstile.generation import Constraint, Draw, Free, GrammarConstraint, Prompt, SchemaConstraint
from turnstile.tokens import LOWEST_LOGPROB

T = TypeVar("T")

COLDEST = 0.01
"""A temperature between 0 and this one is raised to it (`SamplingParams.__post_init__`)."""
_NO_LIMIT = 1 << 20
_TOKEN_ID = "token_id:"
_SLACK = 1e-3


class Ask(msgspec.Struct, frozen=True):
    """One draw from one prompt."""

    prompt: Prompt
    written: bytes
    """The prompt's ids as the inside of a JSON array."""
    draw: Draw
    seed: int
    model: str
    context_length: int | None

    @property
    def room(self) -> int:
        """How many ids may follow the prompt; at least 1, so that it is the engine that refuses one too long."""
        left = _NO_LIMIT if self.context_length is None else self.context_length - len(self.prompt)
        wanted = left if self.draw.max_tokens is None else min(self.draw.max_tokens, left)
        return max(1, wanted)


class Scored(msgspec.Struct, frozen=True):
    """What is said of one sampled id."""

    token_id: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()
    """Likely ids and their log-probabilities."""


class Piece(msgspec.Struct, frozen=True):
    """What one event brought. Empty or None: nothing of that kind."""

    ids: list[int] = []
    scored: list[Scored] | None = None
    said: ReplyDelta | None = None
    echo: list[int] | None = None
    ranges: tuple[PlaceholderRange, ...] | None = None
    counts: Counts | None = None
    finish: str = ""
    stop_reason: int | str | None = None
    spans: tuple[WeightSpan, ...] | None = None
    request_id: str = ""


class Door(Protocol):
    """A route that takes token ids and streams them."""

    @property
    def path(self) -> str:
        """Where it is."""
        ...

    def body(self, ask: Ask) -> bytes:
        """The request for one draw, streamed, ids and counts included."""
        ...

    def piece(self, event: bytes) -> Piece:
        """What an event of the answer brings.

        Raises: CallerError or EngineError if it is an error; EngineError `engine_broken` if it is no event of the
        route.
        """
        ...


class StreamOptions(msgspec.Struct, frozen=True):
    """`stream_options`."""

    include_usage: bool = True


class Structured(msgspec.Struct, frozen=True, omit_defaults=True):
    """`structured_outputs`."""

    json: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    grammar: str | msgspec.UnsetType = msgspec.UNSET


class Sampling(msgspec.Struct, frozen=True):
    """The sampling fields that have one name on all routes."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    max_tokens: int | msgspec.UnsetType
    logit_bias: dict[str, float] | msgspec.UnsetType = msgspec.UNSET
    structured_outputs: Structured | msgspec.UnsetType = msgspec.UNSET


def sampling(ask: Ask, max_tokens: int | msgspec.UnsetType) -> Sampling:
    """How a draw is sampled. Choices get seeds of their own, one up from the last, as vLLM gives them for `n`."""
    draw = ask.draw
    return Sampling(
        temperature=max(0.0, draw.temperature),
        top_p=draw.top_p,
        top_k=draw.top_k,
        min_p=draw.min_p,
        presence_penalty=draw.presence_penalty,
        frequency_penalty=draw.frequency_penalty,
        repetition_penalty=draw.repetition_penalty,
        seed=ask.seed + draw.choice,
        stop=tuple(text for text in draw.stop if text),
        stop_token_ids=tuple(sorted(draw.stop_ids)),
        max_tokens=max_tokens,
        logit_bias={str(token_id): bias for token_id, bias in draw.logit_bias} or msgspec.UNSET,
        structured_outputs=structured(draw.constraint),
    )


def structured(constraint: Constraint) -> Structured | msgspec.UnsetType:
    """A constraint as vLLM takes it; its grammars are written like llama.cpp's."""
    match constraint:
        case Free():
            return msgspec.UNSET
        case GrammarConstraint(gbnf=gbnf):
            return Structured(grammar=gbnf)
        case SchemaConstraint(schema=schema):
            return Structured(json=msgspec.Raw(schema.encode()))
        case _:
            assert_never(constraint)


def with_ids(opening: bytes, ask: Ask, closing: bytes, rest: msgspec.Struct) -> bytes:
    """A body whose long list of ids is not written anew each time: `opening` ids `closing` and the other fields."""
    return opening + ask.written + closing + b"," + msgspec.json.encode(rest)[1:]


def token_id_of(token: str) -> int:
    """The id in `token_id:198`. Raises: EngineError `engine_broken` for any other text."""
    number = token.removeprefix(_TOKEN_ID)
    if number == token or not number.isascii() or not number.isdecimal():
        raise broken(f"a log-probability is of the token {token[:40]!r}, and ids were asked for")
    return int(number)


def natural_log(value: float | None) -> float | None:
    """A log-probability as it came; None if it stands for one that is not finite, as -9999 does (`_clamp_logprob`).

    Raises: EngineError `engine_broken` if it is above 0: then it is a logit.
    """
    if value is None or value <= LOWEST_LOGPROB:
        return None
    if value > _SLACK:
        raise broken(f"a log-probability is {value}")
    return min(0.0, value)


def event_of(event: bytes, shape: type[T]) -> T:
    """An event as `shape`. Raises: CallerError or EngineError if it is an error in place of a chunk."""
    if event.startswith(b'{"error"'):
        detail = detail_of(event)
        raise refused(detail.code if isinstance(detail.code, int) else 500, detail)
    return decoded(event, shape)
