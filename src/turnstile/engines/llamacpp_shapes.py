"""llama.cpp's HTTP bodies, as far as Turnstile reads them (llama.cpp `tools/server/README.md`)."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from turnstile.conversation import JsonText
from turnstile.engines.wire import WireAnswer, json_as, refused, words_of
from turnstile.errors import CallerError, EngineError

T = TypeVar("T")


class GenerationDefaults(msgspec.Struct, frozen=True):
    """The part of `/props` that says how long a slot is."""

    n_ctx: int


class Modalities(msgspec.Struct, frozen=True):
    """What the model can be given beside text."""

    vision: bool = False


class Props(msgspec.Struct, frozen=True):
    """`GET /props`."""

    total_slots: int
    default_generation_settings: GenerationDefaults
    chat_template: str = ""
    model_path: str = ""
    model_alias: str = ""
    bos_token: str = ""
    eos_token: str = ""
    build_info: str = "unknown"
    modalities: Modalities = Modalities()
    media_marker: str = ""
    """What stands for an image in the text of a prompt; another one each time the server starts."""


class ModelMeta(msgspec.Struct, frozen=True):
    """What `/v1/models` says of the loaded model."""

    n_vocab: int | None = None


class ModelEntry(msgspec.Struct, frozen=True):
    """One entry of `/v1/models`."""

    id: str
    aliases: tuple[str, ...] = ()
    meta: ModelMeta | None = None


class Models(msgspec.Struct, frozen=True):
    """`GET /v1/models`."""

    data: tuple[ModelEntry, ...] = ()


class Candidate(msgspec.Struct, frozen=True):
    """A token that could have been sampled: `prob` after all samplers, or `logprob` before any."""

    id: int
    prob: float | None = None
    logprob: float | None = None


class ProbabilityEntry(msgspec.Struct, frozen=True):
    """What is said of a sampled token. There is none for a token that leaves the text inside a character."""

    id: int
    prob: float | None = None
    logprob: float | None = None
    top_probs: tuple[Candidate, ...] = ()
    top_logprobs: tuple[Candidate, ...] = ()


class Completion(msgspec.Struct, frozen=True):
    """`POST /completion`, not streamed, with `return_tokens`."""

    tokens: list[int]
    stop_type: str
    tokens_predicted: int
    tokens_evaluated: int
    truncated: bool
    completion_probabilities: list[ProbabilityEntry] = []
    cache_n: int | None = msgspec.field(default=None, name="timings/cache_n")
    """The server names a trimmed field by its whole path."""
    generation_settings: msgspec.Raw = msgspec.Raw(b"{}")
    prompt: str = ""
    """The prompt that was run, decoded, if it was asked for; images leave nothing in it."""

    @property
    def settings(self) -> JsonText:
        """The sampler settings that were in force, as JSON."""
        return bytes(self.generation_settings).decode(errors="replace")


class Tokenized(msgspec.Struct, frozen=True):
    """`/tokenize`."""

    tokens: list[int]


class Echoed(msgspec.Struct, frozen=True):
    """What `/completion` says of a prompt."""

    prompt: str
    tokens_evaluated: int


class Counted(msgspec.Struct, frozen=True):
    """`/v1/chat/completions/input_tokens`."""

    input_tokens: int


class ErrorDetail(msgspec.Struct, frozen=True):
    """What went wrong, in llama.cpp's words."""

    message: str = ""
    type: str = ""
    n_prompt_tokens: int | None = None
    n_ctx: int | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """An answer with an error status."""

    error: ErrorDetail = ErrorDetail()


def broken(what: str) -> EngineError:
    """The error for an answer that cannot be true; `what` names the field."""
    return EngineError(
        f"llama.cpp's answer cannot be used: {what}",
        remedy="Check that the address is a llama.cpp server's and that its version is supported",
        code="engine_broken",
    )


def read(answer: WireAnswer, shape: type[T]) -> T:
    """An answer's body as `shape`.

    Raises: CallerError `context_length_exceeded`; EngineError `engine_refused` for an error status,
    `engine_broken` for a body that is no such shape, naming the field.
    """
    if answer.status != 200:
        raise _refusal(answer)
    return json_as(answer.body, shape, broken)


def _refusal(answer: WireAnswer) -> CallerError | EngineError:
    try:
        detail = msgspec.json.decode(answer.body, type=ErrorBody).error
    except msgspec.DecodeError:
        detail = ErrorDetail(message=words_of(answer.body))
    if detail.type == "exceed_context_size_error":
        return CallerError(
            f"The prompt has {detail.n_prompt_tokens} tokens and the engine's context holds {detail.n_ctx}",
            remedy="Shorten the conversation, or start the engine with a longer context",
            code="context_length_exceeded",
            param="messages",
        )
    if answer.status < 400:
        return broken(f"status {answer.status} for a request that answers 200")
    return refused("llama.cpp", answer.status, detail.message, "Look into the engine's own log")
