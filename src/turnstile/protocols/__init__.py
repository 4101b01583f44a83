"""The dialects that agents speak."""

from __future__ import annotations

from turnstile.protocols.anthropic import ANTHROPIC, ANTHROPIC_COUNTER
from turnstile.protocols.base import Dialect, TokenCounter
from turnstile.protocols.chat import CHAT
from turnstile.protocols.gemini import GEMINI, GEMINI_COUNTER
from turnstile.protocols.responses import RESPONSES

DIALECTS: tuple[Dialect, ...] = (CHAT, RESPONSES, ANTHROPIC, GEMINI)
"""All of them; a new one is a module of this room and an entry here."""

COUNTERS: tuple[TokenCounter, ...] = (ANTHROPIC_COUNTER, GEMINI_COUNTER)
"""Where clients ask how long a prompt would be."""
