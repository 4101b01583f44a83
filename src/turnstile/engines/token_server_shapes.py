"""The wire of an engine that anyone can write (docs/reference/engine-wire.md), as far as Turnstile reads it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from http.client import BAD_REQUEST, SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from turnstile.engines.wire import WireAnswer, json_as, refused, words_of
from turnstile.errors import CallerError, EngineError
from turnstile.tokens import LOWEST_LOGPROB

T = TypeVar("T")

PROTOCOL = "turnstile.engine/1"
"""What `/info` calls this wire."""
OVERFLOW = "context_length_exceeded"
_SLACK = 1e-4
_REMEDIES = {
    TOO_MANY_REQUESTS: "Send fewer requests at once, or start another engine",
    SERVICE_UNAVAILABLE: "Send the request again; start another engine if it stays busy",
}


class ImageFacts(msgspec.Struct, frozen=True):
    """How the model is shown images."""

    placeholder_id: int
    processor_sha256: str = ""


class Info(msgspec.Struct, frozen=True):
    """`GET /info`."""

    protocol: str
    tokenizer_sha256: str
    """Of the bytes of the `tokenizer.json` that its ids are of."""
    vocab_size: int
    model: str = "model"
    engine: str = "token server"
    version: str = "unknown"
    weight_version: str | int = ""
    context_length: int | None = None
    concurrency: int | None = None
    stop_ids: tuple[int, ...] = ()
    banned_ids: tuple[int, ...] = ()
    """What it never samples."""
    honours: frozenset[str] = frozenset()
    """Optional fields of a request that change what it samples."""
    images: ImageFacts | None = None
    chat_template: str = ""


class ErrorDetail(msgspec.Struct, frozen=True):
    """What went wrong, in the engine's words."""

    message: str = ""
    code: str = ""


class ErrorBody(msgspec.Struct, frozen=True):
    """An answer with an error status."""

    error: ErrorDetail = ErrorDetail()


class WeightSpan(msgspec.Struct, frozen=True):
    """Output ids [start, end) that one version of the weights sampled."""

    version: str | int
    start: int
    end: int


class Event(msgspec.Struct, frozen=True):
    """One event of a streamed `/generate`, or all of an answer that is not streamed."""

    prompt_tokens: int | None = None
    """Ids that ran as the prompt, images in full."""
    prompt_sha256: str = ""
    prompt_ids: list[int] | None = None
    image_ranges: list[tuple[int, int]] = []
    """Start and length of what stands for each image in `prompt_ids`."""
    cached_tokens: int | None = None
    logprobs_mode: str = ""
    logprobs_temperature: float | None = None
    output_ids: list[int] = []
    """Those that are new."""
    logprobs: list[float | None] = []
    """One for each of `output_ids`."""
    weight_version: str | int | None = None
    """Of these very ids."""
    weight_versions: tuple[WeightSpan, ...] = ()
    """Of an answer that is not streamed."""
    finish_reason: str = ""
    """`stop`, `length`, `abort` or `error`; empty while more comes."""
    completion_tokens: int | None = None
    error: ErrorDetail | None = None


class Request(msgspec.Struct, frozen=True):
    """All of a `/generate` but its ids. What is not said is the engine's neutral value."""

    temperature: float
    max_tokens: int | None
    stop_ids: tuple[int, ...]
    stream: bool
    seed: int | UnsetType = UNSET
    top_p: float | UnsetType = UNSET
    top_k: int | UnsetType = UNSET
    min_p: float | UnsetType = UNSET
    presence_penalty: float | UnsetType = UNSET
    frequency_penalty: float | UnsetType = UNSET
    repetition_penalty: float | UnsetType = UNSET
    logit_bias: tuple[tuple[int, float], ...] | UnsetType = UNSET
    images: tuple[str, ...] | UnsetType = UNSET
    """Base64 of each image's bytes as they came, in order."""


def unless(neutral: T, value: T) -> T | UnsetType:
    """A field's value, unless it is what the field is without being said."""
    return UNSET if value == neutral else value


def written(ids: bytes, request: Request) -> bytes:
    """The body. `ids` is the inside of a JSON array."""
    return b'{"input_ids":[' + ids + b"]," + msgspec.json.encode(request)[1:]


def natural_log(value: float | None) -> float | None:
    """A log-probability as it came; None if it is none. Raises: EngineError `engine_broken` if it is above 0."""
    if value is None or not math.isfinite(value) or value <= LOWEST_LOGPROB:
        return None
    if value > _SLACK:
        raise broken(f"`logprobs` has {value}")
    return min(0.0, value)


def natural_logs(ids: Sequence[int], values: Sequence[float | None]) -> list[float | None]:
    """One number for each id; all unknown where there are not as many: nobody knows whose each one is."""
    return [natural_log(each) for each in values] if len(values) == len(ids) else [None] * len(ids)


def broken(what: str) -> EngineError:
    """The error for an answer that cannot be true; `what` names the field."""
    return EngineError(
        f"The engine's answer cannot be used: {what}",
        "Compare the engine with docs/reference/engine-wire.md",
        code="engine_broken",
    )


def refusal(status: int, detail: ErrorDetail) -> CallerError | EngineError:
    """The error for a request that the engine did not run, or broke off.

    Args:
        status: its HTTP status; 200 for an error within a stream.
        detail: its words.
    """
    if detail.code == OVERFLOW:
        return CallerError(
            f"The prompt does not fit the engine's context: {detail.message}",
            "Shorten the conversation, or start the engine with a longer context",
            code="context_length_exceeded",
            param="messages",
        )
    said = f"{detail.message or 'no message'}{f' ({detail.code})' if detail.code else ''}"
    remedy = _REMEDIES.get(status, "Look into the engine's own log")
    if status >= BAD_REQUEST:
        return refused("The engine", status, said, remedy)
    return EngineError(f"The engine broke the answer off: {said}", remedy, code="engine_refused")


def decoded(body: bytes, shape: type[T]) -> T:
    """JSON as `shape`. Raises: EngineError `engine_broken`, naming the field."""
    return json_as(body, shape, broken)


def read(answer: WireAnswer, shape: type[T]) -> T:
    """An answer's body as `shape`.

    Raises: CallerError `context_length_exceeded`; EngineError `engine_refused` for an error status,
    `engine_broken` for a body that is no such shape.
    """
    if answer.status == 200:
        return decoded(answer.body, shape)
    if answer.status < BAD_REQUEST:
        raise broken(f"status {answer.status} for a request that answers 200")
    raise refusal(answer.status, _detail(answer.body))


def _detail(body: bytes) -> ErrorDetail:
    try:
        return msgspec.json.decode(body, type=ErrorBody).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ErrorDetail(words_of(body))
