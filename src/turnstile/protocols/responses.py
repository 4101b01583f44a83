"""OpenAI Responses."""

from __future__ import annotations

import functools
from typing import final

from turnstile.errors import TurnstileError
from turnstile.protocols.base import Decoded, WireRequest
from turnstile.protocols.openai_error import error_body
from turnstile.protocols.responses_decode import DIALECT_NAME, decode
from turnstile.protocols.responses_encode import encoder_for


@final
class ResponsesDialect:
    """The API that Codex and OpenAI's agents speak."""

    name = DIALECT_NAME
    paths = ("/v1/responses", "/responses")

    def decode(self, request: WireRequest) -> Decoded:
        """Understand a request.

        Raises: CallerError that names the field at fault and what to send instead.
        """
        call, form = decode(request)
        return Decoded(call, functools.partial(encoder_for, form))

    def refuse(self, error: TurnstileError) -> bytes:
        """The body of an error answer."""
        return error_body(error)


RESPONSES = ResponsesDialect()
