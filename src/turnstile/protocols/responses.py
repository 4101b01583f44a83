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
        """The body of an error answer; `param` is the field that this dialect has for what other rooms name."""
        return error_body(error, _own_name(error.param))


_OWN_NAMES = {"max_tokens": "max_output_tokens", "response_format": "text.format"}


def _own_name(param: str) -> str:
    """Messages are numbered otherwise than items, so all that is said of one is that it is in the input."""
    return "input" if param.startswith("messages") else _OWN_NAMES.get(param, param)


RESPONSES = ResponsesDialect()
