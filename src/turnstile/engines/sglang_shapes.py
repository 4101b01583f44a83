"""SGLang's HTTP bodies, as far as Turnstile reads them. Source: the package sglang 0.5.23, read, not run.

Answers and stream events: `srt/managers/tokenizer_manager.py` (`_handle_batch_output`, `_handle_abort_req`); how an
answer ends: `srt/managers/schedule_batch.py` (`FINISH_*`); errors: `srt/entrypoints/http_server.py`.
"""

from __future__ import annotations

from http.client import BAD_REQUEST, NOT_FOUND
from typing import TypeVar

import msgspec

from turnstile.engines.wire import WireAnswer, json_as, refused, words_of
from turnstile.errors import CallerError, EngineError

T = TypeVar("T")

READ_VERSION = "0.5.23"
"""The version whose source these shapes were read in."""

_OVERFLOWS = (
    "is longer than the model's context length",
    "exceeds the model's maximum context length",
    "exceeds the maximum allowed length",
    "prompt is too long after expanding multimodal tokens",
    "exceeds the KV memory budget",
)
"""What its checks of lengths say: tokenizer_manager.py `_validate_one_request`, managers/utils.py
`validate_input_length`, scheduler.py `init_req_max_new_tokens` and `handle_generate_request`."""
_REMEDIES = {
    NOT_FOUND: "Give the address of an SGLang server, or leave --engine-kind out: what answers there is then found out",
}


class ModelInfo(msgspec.Struct, frozen=True):
    """`GET /model_info`. Both fields without a default have to be there: they tell SGLang from other servers."""

    model_path: str
    is_generation: bool
    served_model_name: str = ""
    has_image_understanding: bool = False
    reasoning_parser: str | None = None
    tool_call_parser: str | None = None


class ServerInfo(msgspec.Struct, frozen=True):
    """`GET /server_info`: the resolved settings, flat, and the version."""

    version: str = "unknown"
    incremental_streaming_output: bool = False
    allow_auto_truncate: bool = False
    skip_tokenizer_init: bool = False
    language_model_only: bool = False
    enable_deterministic_inference: bool = False
    grammar_backend: str | None = None
    max_running_requests: int | None = None


class ModelEntry(msgspec.Struct, frozen=True):
    """One entry of `/v1/models`; adapters name the model that they belong to."""

    id: str
    parent: str | None = None
    max_model_len: int | None = None


class Models(msgspec.Struct, frozen=True):
    """`GET /v1/models`."""

    data: tuple[ModelEntry, ...] = ()


class Tokenized(msgspec.Struct, frozen=True):
    """`POST /v1/tokenize`."""

    tokens: list[int]


class LogprobEntry(msgspec.Struct, frozen=True, array_like=True):
    """`[logprob, token_id, text]`; a number that is not finite arrives as null."""

    logprob: float | None
    token_id: int


class FinishReason(msgspec.Struct, frozen=True):
    """How sampling ended: `stop` with what matched, `length`, or `abort` with a message and perhaps a status."""

    type: str
    matched: int | str | list[int] | None = None
    message: str = ""
    status_code: int | None = None


class WeightSpan(msgspec.Struct, frozen=True):
    """Output ids [start, end) that one version of the weights sampled."""

    version: str
    start: int
    end: int


class MetaInfo(msgspec.Struct, frozen=True):
    """What is said beside the ids. The counts are totals in every event, whatever part of the ids an event brings."""

    id: str = ""
    finish_reason: FinishReason | None = None
    prompt_tokens: int | None = None
    """Missing where a request was aborted before it ran."""
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    output_token_logprobs: list[LogprobEntry] | None = None
    output_token_logprobs_length: int | None = None
    output_top_logprobs: list[list[LogprobEntry] | None] | None = None
    output_token_ids_logprobs: list[list[LogprobEntry] | None] | None = None
    weight_versions: tuple[WeightSpan, ...] = ()
    """Only beside a finish reason."""


class ErrorDetail(msgspec.Struct, frozen=True):
    """An error inside of an answer."""

    message: str = ""
    code: int | str | None = None


class Event(msgspec.Struct, frozen=True):
    """One event of a streamed `/generate`, or a whole answer. An error may come with status 200, in a stream."""

    output_ids: list[int] | None = None
    meta_info: MetaInfo | None = None
    prompt_token_ids: list[int] | None = None
    error: ErrorDetail | str | None = None


class _ErrorBody(msgspec.Struct, frozen=True):
    error: ErrorDetail | str | None = None
    message: str = ""
    detail: str = ""

    @property
    def said(self) -> str:
        """The message, wherever it stands: each of its error handlers has another shape."""
        if isinstance(self.error, ErrorDetail):
            return self.error.message
        return self.error or self.message or self.detail


def broken(what: str) -> EngineError:
    """The error for an answer that cannot be true, or that Turnstile does not know; `what` names the field."""
    return EngineError(
        f"SGLang's answer cannot be used: {what}",
        f"Check that the address is an SGLang server's; its answers were read in the source of version {READ_VERSION}",
        code="engine_broken",
    )


def refusal(status: int, message: str) -> CallerError | EngineError:
    """The error for a request that SGLang did not run, or broke off.

    Args:
        status: its HTTP status, or the one in the answer.
        message: its words.
    """
    if status == BAD_REQUEST and any(words in message for words in _OVERFLOWS):
        return CallerError(
            f"The prompt does not fit the engine's context: {message}",
            "Shorten the conversation, ask for fewer tokens, or start the engine with a longer context",
            code="context_length_exceeded",
            param="messages",
        )
    return refused("SGLang", status, message, _REMEDIES.get(status, "Look into the engine's own log"))


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
    raise refusal(answer.status, _message(answer.body))


def _message(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_ErrorBody).said
    except msgspec.DecodeError:
        return words_of(body)
