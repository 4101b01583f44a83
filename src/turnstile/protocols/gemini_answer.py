"""A generateContent answer as it stands on the wire. `UNSET` members are left out.

Source: Google's reference of the Generative Language API v1beta as of the `google-genai` package 3.6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from turnstile.conversation import ReplyFinish, TokenLogprob, Usage

UNKNOWN_LOGPROB = -9999.0
"""What a client is told of a log-probability that is unknown or not finite; it exists on this wire only."""


class WireCalled(msgspec.Struct, frozen=True):
    """A call, whole: its arguments never come in pieces."""

    id: str
    name: str
    args: Raw


class WirePart(msgspec.Struct, frozen=True, rename="camel"):
    """One part of what a candidate says."""

    text: str | UnsetType = UNSET
    thought: bool | UnsetType = UNSET
    function_call: WireCalled | UnsetType = UNSET
    thought_signature: str | UnsetType = UNSET


class WireContent(msgspec.Struct, frozen=True):
    """What a candidate says, or gained."""

    parts: list[WirePart]
    role: str = "model"


class WireToken(msgspec.Struct, frozen=True, rename="camel"):
    """A token."""

    token: str
    log_probability: float


class WireTopTokens(msgspec.Struct, frozen=True):
    """Tokens that might have stood at one place."""

    candidates: list[WireToken]


class WireLogprobs(msgspec.Struct, frozen=True, rename="camel"):
    """Sampled tokens in order, and the alternatives at each place."""

    chosen_candidates: list[WireToken]
    top_candidates: list[WireTopTokens]


class WireCandidate(msgspec.Struct, frozen=True, rename="camel"):
    """One choice, or what it gained."""

    content: WireContent
    index: int
    finish_reason: str | UnsetType = UNSET
    logprobs_result: WireLogprobs | UnsetType = UNSET


class WireUsage(msgspec.Struct, frozen=True, rename="camel"):
    """Token counts. Those of thoughts are not told apart from the rest of the candidates'."""

    prompt_token_count: int
    candidates_token_count: int
    total_token_count: int
    cached_content_token_count: int | UnsetType = UNSET


class WireAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """A whole answer, or a chunk of a stream."""

    candidates: list[WireCandidate]
    model_version: str
    response_id: str
    usage_metadata: WireUsage | UnsetType = UNSET


def usage_of(usage: Usage) -> WireUsage:
    """Token counts, with the cached ones where the engine said."""
    return WireUsage(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
        UNSET if usage.cached_tokens is None else usage.cached_tokens,
    )


def finish_reason_of(finish: ReplyFinish) -> str:
    """Why a candidate ended; Google has no reason of its own for one that made calls."""
    return "MAX_TOKENS" if finish is ReplyFinish.LENGTH else "STOP"


def logprobs_of(tokens: Sequence[TokenLogprob], top: int | None) -> WireLogprobs | UnsetType:
    """Tokens as Google shows them, with at most `top` alternatives; nothing if there are none or none were asked for.

    A token that ends inside a character shows U+FFFD as its text.
    """
    if top is None or not tokens:
        return UNSET
    return WireLogprobs(
        [_token(each.token, each.logprob) for each in tokens],
        [WireTopTokens([_token(token, logprob) for token, logprob in each.top[:top]]) for each in tokens],
    )


def _token(token: bytes, logprob: float | None) -> WireToken:
    number = logprob if logprob is not None and math.isfinite(logprob) else UNKNOWN_LOGPROB
    return WireToken(token.decode(errors="replace"), number)
