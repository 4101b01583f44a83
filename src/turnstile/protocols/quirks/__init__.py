"""What real harnesses send that would spoil a record: data, and one interpreter (docs/reference/quirks.md)."""

from __future__ import annotations

from turnstile.protocols.quirks.choosing import FileForm, chosen_quirks, read_quirks
from turnstile.protocols.quirks.entry import Quirk
from turnstile.protocols.quirks.interpreter import apply
from turnstile.protocols.quirks.known import KNOWN

__all__ = ["KNOWN", "FileForm", "Quirk", "apply", "chosen_quirks", "read_quirks"]
