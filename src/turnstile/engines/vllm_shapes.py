"""vLLM's HTTP bodies, as far as Turnstile reads them.

Source: vLLM 0.32.0, `entrypoints/{openai/*,scale_out/token_in_token_out,serve/engine}/protocol.py`.
"""

from __future__ import annotations

import re
from http.client import FORBIDDEN, METHOD_NOT_ALLOWED, NOT_FOUND, NOT_IMPLEMENTED
from typing import TypeVar

import msgspec

from turnstile.engines.wire import WireAnswer, json_as, words_of
from turnstile.engines.wire import refused as refused_by
from turnstile.errors import CallerError, EngineError

T = TypeVar("T")

OWNER = "vllm"
"""What `/v1/models` says in `owned_by`."""
_CLOSED = frozenset({FORBIDDEN, NOT_FOUND, METHOD_NOT_ALLOWED, NOT_IMPLEMENTED})
_OVERFLOW = re.compile(r"maximum (context|model) length|exceeds (the )?model's (maximum )?context|max_model_len")
_SHOWN_BYTES = 300


class Version(msgspec.Struct, frozen=True):
    """`GET /version`."""

    version: str = "unknown"


class ModelEntry(msgspec.Struct, frozen=True):
    """One entry of `/v1/models`; adapters name the model that they belong to."""

    id: str
    owned_by: str = ""
    root: str | None = None
    """A hub name, or a folder on the engine's machine."""
    parent: str | None = None
    max_model_len: int | None = None


class Models(msgspec.Struct, frozen=True):
    """`GET /v1/models`."""

    data: tuple[ModelEntry, ...] = ()


class Tokenized(msgspec.Struct, frozen=True):
    """`POST /tokenize`."""

    tokens: list[int]


class WeightInfo(msgspec.Struct, frozen=True):
    """`GET /weight_info`."""

    weight_version: str


class CachedTokens(msgspec.Struct, frozen=True):
    """What of the prompt was in the cache; only with `--enable-prompt-tokens-details`."""

    cached_tokens: int | None = None


class Counts(msgspec.Struct, frozen=True):
    """`usage`."""

    prompt_tokens: int
    completion_tokens: int | None = 0
    prompt_tokens_details: CachedTokens | None = None


class WeightSpan(msgspec.Struct, frozen=True):
    """Output ids [start, end) that one version of the weights sampled."""

    version: str
    start: int
    end: int


class PlaceholderRange(msgspec.Struct, frozen=True):
    """Where one image stands in the expanded prompt."""

    offset: int
    length: int


class ErrorDetail(msgspec.Struct, frozen=True):
    """What went wrong, in vLLM's words."""

    message: str = ""
    type: str = ""
    param: str | None = None
    code: int | str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """An answer with an error status, or an event in place of a chunk."""

    error: ErrorDetail = ErrorDetail()


def broken(what: str) -> EngineError:
    """The error for an answer that cannot be true; `what` names the field."""
    return EngineError(
        f"vLLM's answer cannot be used: {what}",
        remedy="Check that the address is a vLLM server's and that its version is supported",
        code="engine_broken",
    )


def is_closed(answer: WireAnswer) -> bool:
    """Whether a route is not there, or was not turned on."""
    return answer.status in _CLOSED


def decoded(body: bytes, shape: type[T]) -> T:
    """JSON as `shape`. Raises: EngineError `engine_broken`, naming the field."""
    return json_as(body, shape, broken)


def read(answer: WireAnswer, shape: type[T]) -> T:
    """An answer's body as `shape`.

    Raises: CallerError `context_length_exceeded`; EngineError `engine_refused` for an error status,
    `engine_broken` for a body that is no such shape, naming the field.
    """
    if answer.status != 200:
        raise refusal(answer)
    return decoded(answer.body, shape)


def refusal(answer: WireAnswer) -> CallerError | EngineError:
    """The error that an answer with an error status stands for."""
    return refused(answer.status, detail_of(answer.body))


def detail_of(body: bytes) -> ErrorDetail:
    """What an error's body says, whatever it is made of."""
    try:
        return msgspec.json.decode(body, type=ErrorBody).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ErrorDetail(words_of(body, _SHOWN_BYTES))


def refused(status: int, detail: ErrorDetail) -> CallerError | EngineError:
    """The error for what vLLM says went wrong.

    Its texts for a prompt that is too long differ by route (`param` is `input_tokens` on two of them), so they are
    told by what they have in common.
    """
    if status in (400, 413) and (detail.param == "input_tokens" or _OVERFLOW.search(detail.message)):
        return CallerError(
            f"The engine's context does not hold the prompt: {detail.message}",
            remedy="Shorten the conversation, or start the engine with a longer --max-model-len",
            code="context_length_exceeded",
            param="messages",
        )
    if status < 400:
        return broken(f"status {status} for a request that answers 200")
    return refused_by("vLLM", status, detail.message, "Look into the engine's own log")
