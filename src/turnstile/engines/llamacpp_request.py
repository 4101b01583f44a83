"""The bodies sent to llama.cpp's `/completion`: ids in, and every sampler setting said outright.

The server's defaults filter (top-k 40, top-p 0.95, min-p 0.05), so nothing is left to them.
"""

from __future__ import annotations

import hashlib
from typing import assert_never

import msgspec

from turnstile.engines.llamacpp_slots import Lease
from turnstile.engines.prompt_json import ids_json
from turnstile.generation import Constraint, Draw, Free, GrammarConstraint, LogprobsMode, SchemaConstraint

_CERTAIN = 1000.0
_ALWAYS = (
    "tokens",
    "stop_type",
    "tokens_predicted",
    "tokens_evaluated",
    "truncated",
    "completion_probabilities",
    "timings/cache_n",
)
_FIRST = (*_ALWAYS, "generation_settings")
_SHOWN = (*_FIRST, "prompt")


class _Request(msgspec.Struct, frozen=True):
    n_predict: int
    seed: int
    id_slot: int
    n_probs: int
    post_sampling_probs: bool
    response_fields: tuple[str, ...]
    samplers: tuple[str, ...]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: tuple[tuple[int, float], ...]
    grammar: str | msgspec.UnsetType = msgspec.UNSET
    json_schema: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    repeat_last_n: int = 0
    """How far back penalties look: over the whole sequence, so that cutting it into requests changes nothing."""
    stop: tuple[str, ...] = ()
    """Never sent: with a stop string the server drops the probabilities of the tokens that spell it."""
    return_tokens: bool = True
    cache_prompt: bool = True
    stream: bool = False
    ignore_eos: bool = False
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    dry_multiplier: float = 0.0
    mirostat: int = 0
    dynatemp_range: float = 0.0


def segment_seed(seed: int, choice: int, offset: int) -> int:
    """The 32-bit seed of the segment that starts `offset` tokens into a choice's answer.

    Two segments never share a stream of random numbers, and the same request draws the same ones again.
    """
    digest = hashlib.blake2s(f"{seed}:{choice}:{offset}".encode(), digest_size=4).digest()
    # llama.cpp reads 0xFFFFFFFF as "choose one yourself".
    return int.from_bytes(digest, "little") % 0xFFFFFFFF


def logprobs_mode(draw: Draw) -> LogprobsMode:
    """Which distribution the recorded numbers belong to.

    After the samplers (`post_sampling_probs`) wherever that is the distribution that was sampled from. It is not
    at temperature 0, where it is a constant, and not under a grammar: llama.cpp first samples without the grammar
    and reports that distribution if the token happens to fit, so the same token in the same place has two numbers
    (docs/decisions/0003-llamacpp-exact-streaming.md). There the model's own distribution is recorded.
    """
    if draw.temperature <= 0 or not isinstance(draw.constraint, Free):
        return LogprobsMode.RAW
    return LogprobsMode.PROCESSED


def is_penalised(draw: Draw) -> bool:
    """Whether tokens that stand in the sequence already become less likely."""
    return bool(draw.presence_penalty or draw.frequency_penalty or draw.repetition_penalty != 1.0)


def samplers(draw: Draw) -> tuple[str, ...]:
    """The sampler chain of a draw: temperature before the filters, as OpenAI's and vLLM's parameters mean it."""
    filters = (
        ("top_k", draw.top_k > 0),
        ("top_p", draw.top_p < 1.0),
        ("min_p", draw.min_p > 0.0),
    )
    chain = ("temperature", *(name for name, is_on in filters if is_on))
    return ("penalties", *chain) if is_penalised(draw) else chain


class WrittenPrompt(msgspec.Struct, frozen=True):
    """A prompt as the inside of a JSON array, or with images as a JSON object."""

    json: bytes
    length: int
    """Ids in it, images included."""
    echo: str | None = None
    """What the server has to say that it ran, decoded, if the prompt has images; None: it has none."""


class RequestBody:
    """The bodies of one draw."""

    def __init__(self, prompt: WrittenPrompt, draw: Draw, lease: Lease, seed: int) -> None:
        self._prompt = prompt.json
        self._prompt_length = prompt.length
        self._echo = prompt.echo
        self._draw = draw
        self._lease = lease
        self._seed = seed
        self._mode = logprobs_mode(draw)

    @property
    def prompt_length(self) -> int:
        """Ids in the prompt."""
        return self._prompt_length

    @property
    def echo(self) -> str | None:
        """The text that a prompt with images has to be echoed as; None: it has no images."""
        return self._echo

    @property
    def lease(self) -> Lease:
        """The slot that the requests go to."""
        return self._lease

    def sample(self, sampled_S: list[int], count: int) -> bytes:
        """Sample up to `count` more ids behind those sampled so far."""
        draw = self._draw
        request = _Request(
            n_predict=count,
            seed=segment_seed(self._seed, draw.choice, len(sampled_S)),
            id_slot=self._lease.id_slot,
            n_probs=max(1, draw.top_logprobs),
            post_sampling_probs=self._mode is LogprobsMode.PROCESSED,
            response_fields=_ALWAYS if sampled_S else _FIRST if self._echo is None else _SHOWN,
            samplers=samplers(draw),
            temperature=max(0.0, draw.temperature),
            top_k=draw.top_k,
            top_p=draw.top_p,
            min_p=draw.min_p,
            repeat_penalty=draw.repetition_penalty,
            presence_penalty=draw.presence_penalty,
            frequency_penalty=draw.frequency_penalty,
            logit_bias=draw.logit_bias,
            repeat_last_n=self._prompt_length + len(sampled_S) + count if is_penalised(draw) else 0,
        )
        return self._written(sampled_S, _constrained(request, draw.constraint))

    def row(self, sampled_S: list[int], forced_id: int, entries: int) -> bytes:
        """Ask for the likeliest `entries` tokens behind those sampled so far, before any sampler.

        `forced_id` is sampled whatever the model thinks; the bias that does it does not show in the numbers.
        """
        request = _one_token(self._lease.id_slot, entries, 1.0, (forced_id, _CERTAIN))
        return self._written(sampled_S, request)

    def tilted(self, sampled_S: list[int], token_id: int, bias: float, attempt: int) -> bytes:
        """Sample one token at the draw's temperature with one token made likelier; the bias shows in its number."""
        request = _one_token(self._lease.id_slot, 1, self._draw.temperature, (token_id, bias))
        request = msgspec.structs.replace(request, post_sampling_probs=True, seed=attempt)
        return self._written(sampled_S, request)

    def _written(self, sampled_S: list[int], request: _Request) -> bytes:
        if self._echo is not None:
            return b'{"prompt":' + self._prompt + b"," + msgspec.json.encode(request)[1:]
        ids = b",".join(part for part in (self._prompt, ids_json(sampled_S)) if part)
        return b'{"prompt":[' + ids + b"]," + msgspec.json.encode(request)[1:]


def _one_token(slot: int, entries: int, temperature: float, bias: tuple[int, float]) -> _Request:
    return _Request(
        n_predict=1,
        seed=0,
        id_slot=slot,
        n_probs=entries,
        post_sampling_probs=False,
        response_fields=_ALWAYS,
        samplers=("temperature",),
        temperature=temperature,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        repeat_penalty=1.0,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        logit_bias=(bias,),
    )


def _constrained(request: _Request, constraint: Constraint) -> _Request:
    match constraint:
        case Free():
            return request
        case GrammarConstraint(gbnf=gbnf):
            return msgspec.structs.replace(request, grammar=gbnf)
        case SchemaConstraint(schema=schema):
            return msgspec.structs.replace(request, json_schema=msgspec.Raw(schema.encode()))
        case _:
            assert_never(constraint)
