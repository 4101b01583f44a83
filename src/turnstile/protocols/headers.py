"""What a request's headers say, whatever the dialect."""

from __future__ import annotations

from collections.abc import Mapping

from turnstile.conversation import RetryMark

_LONGEST_KEY = 255
_MOST_DIGITS = 6


def retry_mark(headers: Mapping[str, str]) -> RetryMark:
    """What the client says about a repeat; what cannot be read says nothing.

    Args:
        headers: names in lower case.

    Source: the official `openai` and `anthropic` SDKs send `x-stainless-retry-count` (0 on the first try) and,
    where they are asked to, `idempotency-key`; a key is at most 255 characters.
    """
    key = headers.get("idempotency-key", "").strip()
    count = headers.get("x-stainless-retry-count", "").strip()
    readable = count.isascii() and count.isdigit() and len(count) <= _MOST_DIGITS
    return RetryMark(
        idempotency_key=key if len(key) <= _LONGEST_KEY else "",
        retry_count=int(count) if readable else 0,
    )
