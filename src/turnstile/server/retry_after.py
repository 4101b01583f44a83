"""When a client that was refused should come again."""

from __future__ import annotations

from turnstile.errors import TurnstileError

_SECONDS = {"overloaded": 5, "disk_low": 30}
"""OpenAI's and Anthropic's clients obey up to 60, and try twice by themselves."""


def retry_after(error: TurnstileError) -> dict[str, str]:
    """The header for an error that passes by itself; none for others.

    Source: Codex gives up at once on a 429 that does not say when to come back.
    """
    return {"retry-after": str(_SECONDS.get(error.code, 1))} if error.status in (429, 503) else {}
