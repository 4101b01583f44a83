"""OpenAI chat completions."""

from __future__ import annotations

import functools
from typing import final

from turnstile.errors import TurnstileError
from turnstile.protocols.base import Decoded, WireRequest
from turnstile.protocols.chat_decode import DIALECT_NAME, decode
from turnstile.protocols.chat_encode import encoder_for
from turnstile.protocols.openai_error import error_body


@final
class ChatDialect:
    """The API that most agents speak."""

    name = DIALECT_NAME
    paths = ("/v1/chat/completions", "/chat/completions")

    def decode(self, request: WireRequest) -> Decoded:
        """Understand a request.

        Raises: CallerError that names the field at fault and what to send instead.
        """
        call, form = decode(request)
        return Decoded(call, functools.partial(encoder_for, form))

    def refuse(self, error: TurnstileError) -> bytes:
        """The body of an error answer."""
        return error_body(error)


CHAT = ChatDialect()
