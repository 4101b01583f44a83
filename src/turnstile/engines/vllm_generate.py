"""`/inference/v1/generate`: ids and images in, ids out, no parser in between, and the weights that sampled each id.

Off unless the server runs with `--enable-scale-out`. Source: vLLM 0.32.0, `entrypoints/scale_out/token_in_token_out`.
"""

from __future__ import annotations

import base64
from typing import final

import msgspec

from turnstile.conversation import Media
from turnstile.engines.vllm_door import (
    Ask,
    Piece,
    Sampling,
    Scored,
    StreamOptions,
    event_of,
    natural_log,
    sampling,
    with_ids,
)
from turnstile.engines.vllm_shapes import Counts, PlaceholderRange, WeightSpan
from turnstile.generation import Free


class _Sampling(Sampling, frozen=True, kw_only=True):
    logprobs: int
    detokenize: bool
    """Text is needed to find stop strings, and for nothing else."""


class _ContentPart(msgspec.Struct, frozen=True):
    url: str
    type: str = "image_url"


class _Body(msgspec.Struct, frozen=True):
    model: str
    sampling_params: _Sampling
    content_parts: tuple[_ContentPart, ...] | msgspec.UnsetType
    reasoning_ended: bool | msgspec.UnsetType
    """Our grammars know the reasoning, so they hold from the first id on, whatever parser the server runs."""
    stream_options: StreamOptions = StreamOptions()
    stream: bool = True
    return_token_ids: bool = True


class _Alternative(msgspec.Struct, frozen=True):
    token_id: int
    logprob: float | None


class _Entry(msgspec.Struct, frozen=True):
    token_id: int
    logprob: float | None
    top_logprobs: tuple[_Alternative, ...] = ()


class _Logprobs(msgspec.Struct, frozen=True):
    content: list[_Entry] | None = None


class _Choice(msgspec.Struct, frozen=True):
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    weight_versions: tuple[WeightSpan, ...] | None = None


class _Chunk(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...]
    request_id: str = ""
    prompt_token_ids: list[int] | None = None
    mm_placeholders: dict[str, tuple[PlaceholderRange, ...]] | None = None
    usage: Counts | None = None


@final
class Generate:
    """The door; it has no state."""

    path = "/inference/v1/generate"

    def body(self, ask: Ask) -> bytes:
        """See `Door.body`. Images go as they came, one for each placeholder id; the server expands them."""
        draw = ask.draw
        # Left out, it is the rest of the context; with images only the server knows how much that is.
        common = sampling(ask, msgspec.UNSET if draw.max_tokens is None else draw.max_tokens)
        parameters = _Sampling(
            **msgspec.structs.asdict(common), logprobs=draw.top_logprobs, detokenize=bool(common.stop)
        )
        parts = tuple(_ContentPart(data_url(media)) for media in ask.prompt.media)
        is_constrained = not isinstance(draw.constraint, Free)
        rest = _Body(ask.model, parameters, parts or msgspec.UNSET, True if is_constrained else msgspec.UNSET)
        return with_ids(b'{"token_ids":[', ask, b"]", rest)

    def piece(self, event: bytes) -> Piece:
        """See `Door.piece`."""
        chunk = event_of(event, _Chunk)
        choice = chunk.choices[0] if chunk.choices else _Choice()
        ranges = (chunk.mm_placeholders or {}).get("image")
        return Piece(
            ids=choice.token_ids or [],
            scored=_scored(choice.logprobs),
            echo=chunk.prompt_token_ids,
            ranges=ranges,
            counts=chunk.usage,
            finish=choice.finish_reason or "",
            stop_reason=choice.stop_reason,
            spans=choice.weight_versions,
            request_id=chunk.request_id,
        )


def data_url(media: Media) -> str:
    """An image's bytes as a URL."""
    return f"data:{media.media_type};base64,{base64.b64encode(media.data).decode()}"


def _scored(logprobs: _Logprobs | None) -> list[Scored] | None:
    if logprobs is None or logprobs.content is None:
        return None
    return [
        Scored(
            entry.token_id,
            natural_log(entry.logprob),
            tuple(
                (other.token_id, value)
                for other in entry.top_logprobs
                if (value := natural_log(other.logprob)) is not None
            ),
        )
        for entry in logprobs.content
    ]
