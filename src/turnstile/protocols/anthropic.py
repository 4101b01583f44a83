"""Anthropic Messages."""

from __future__ import annotations

import functools
from typing import final

import msgspec

from turnstile.errors import TurnstileError
from turnstile.protocols.anthropic_decode import DIALECT_NAME, decode, decode_count
from turnstile.protocols.anthropic_encode import encoder_for
from turnstile.protocols.anthropic_error import error_body
from turnstile.protocols.base import CountQuestion, Decoded, WireRequest


class _WireCount(msgspec.Struct, frozen=True):
    input_tokens: int


@final
class AnthropicDialect:
    """The API that Claude Code and Anthropic's own SDKs speak."""

    name = DIALECT_NAME
    paths = ("/v1/messages",)

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
class AnthropicCounter:
    """How many tokens a Messages request would have."""

    paths = ("/v1/messages/count_tokens",)

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


ANTHROPIC = AnthropicDialect()
ANTHROPIC_COUNTER = AnthropicCounter()
