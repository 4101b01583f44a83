"""The dialects that agents speak."""

from __future__ import annotations

from turnstile.protocols.base import Dialect
from turnstile.protocols.chat import CHAT
from turnstile.protocols.responses import RESPONSES

DIALECTS: tuple[Dialect, ...] = (CHAT, RESPONSES)
"""All of them; a new one is a module of this room and an entry here."""
