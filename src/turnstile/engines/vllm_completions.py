"""`/v1/completions`: ids in and out on every vLLM server; text only.

Source: vLLM 0.32.0, `entrypoints/openai/completion`.
"""

from __future__ import annotations

from typing import final

import msgspec

from turnstile.engines.vllm_door import (
    Ask,
    Piece,
    Sampling,
    Scored,
    StreamOptions,
    event_of,
    natural_log,
    sampling,
    token_id_of,
    with_ids,
)
from turnstile.engines.vllm_shapes import Counts, broken


class _Body(Sampling, frozen=True, kw_only=True):
    model: str
    logprobs: int
    stream_options: StreamOptions = StreamOptions()
    stream: bool = True
    return_token_ids: bool = True
    return_tokens_as_token_ids: bool = True
    add_special_tokens: bool = False


class _Logprobs(msgspec.Struct, frozen=True):
    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] = []


class _Choice(msgspec.Struct, frozen=True):
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class _Chunk(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...]
    id: str = ""
    usage: Counts | None = None


@final
class Completions:
    """The door; it has no state."""

    path = "/v1/completions"

    def body(self, ask: Ask) -> bytes:
        """See `Door.body`."""
        # Left out, `max_tokens` is 16 here.
        common = sampling(ask, ask.room)
        rest = _Body(**msgspec.structs.asdict(common), model=ask.model, logprobs=ask.draw.top_logprobs)
        return with_ids(b'{"prompt":[', ask, b"]", rest)

    def piece(self, event: bytes) -> Piece:
        """See `Door.piece`."""
        chunk = event_of(event, _Chunk)
        choice = chunk.choices[0] if chunk.choices else _Choice()
        return Piece(
            ids=choice.token_ids or [],
            scored=_scored(choice.logprobs),
            echo=choice.prompt_token_ids,
            counts=chunk.usage,
            finish=choice.finish_reason or "",
            stop_reason=choice.stop_reason,
            request_id=chunk.id,
        )


def _scored(logprobs: _Logprobs | None) -> list[Scored] | None:
    if logprobs is None:
        return None
    if len(logprobs.tokens) != len(logprobs.token_logprobs):
        raise broken(f"{len(logprobs.tokens)} `tokens` and {len(logprobs.token_logprobs)} `token_logprobs`")
    tops = logprobs.top_logprobs or [None] * len(logprobs.tokens)
    return [
        Scored(
            token_id_of(token),
            natural_log(value),
            tuple(
                (token_id_of(other), known)
                for other, number in (top or {}).items()
                if (known := natural_log(number)) is not None
            ),
        )
        for token, value, top in zip(logprobs.tokens, logprobs.token_logprobs, tops, strict=False)
    ]
