"""Gemini: generateContent, streamGenerateContent and countTokens."""

from __future__ import annotations

import functools
from typing import final

import msgspec

from turnstile.errors import TurnstileError
from turnstile.protocols.base import CountQuestion, Decoded, WireRequest
from turnstile.protocols.gemini_decode import DIALECT_NAME, decode, decode_count
from turnstile.protocols.gemini_encode import encoder_for
from turnstile.protocols.gemini_error import error_body


class _WireCount(msgspec.Struct, frozen=True, rename="camel"):
    total_tokens: int


@final
class GeminiDialect:
    """The API that gemini-cli and Google's own SDKs speak."""

    name = DIALECT_NAME
    paths = (
        "/v1beta/models/{model}:generateContent",
        "/v1beta/models/{model}:streamGenerateContent",
        "/v1/models/{model}:generateContent",
        "/v1/models/{model}:streamGenerateContent",
    )

    def decode(self, request: WireRequest) -> Decoded:
        """Understand a request.

        Raises: CallerError that names the field at fault and what to send instead.
        """
        call, form = decode(request)
        return Decoded(call, functools.partial(encoder_for, form))

    def refuse(self, error: TurnstileError) -> bytes:
        """The body of an error answer."""
        return error_body(error)


@final
class GeminiCounter:
    """How many tokens a generateContent request would have."""

    paths = ("/v1beta/models/{model}:countTokens", "/v1/models/{model}:countTokens")

    def decode(self, request: WireRequest) -> CountQuestion:
        """Understand a question.

        Raises: CallerError that names the field at fault and what to send instead.
        """
        return CountQuestion(decode_count(request), _count_body)

    def refuse(self, error: TurnstileError) -> bytes:
        """The body of an error answer."""
        return error_body(error)


def _count_body(prompt_tokens: int) -> bytes:
    return msgspec.json.encode(_WireCount(prompt_tokens))


GEMINI = GeminiDialect()
GEMINI_COUNTER = GeminiCounter()
