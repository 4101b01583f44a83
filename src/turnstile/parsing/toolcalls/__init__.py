"""Tool-call formats, one a file."""

from __future__ import annotations

from turnstile.parsing.toolcalls.base import ToolCallFormat
from turnstile.parsing.toolcalls.hermes import Hermes
from turnstile.parsing.toolcalls.llama3_json import Llama3Json
from turnstile.parsing.toolcalls.qwen3_coder import Qwen3Coder

FORMATS: tuple[ToolCallFormat, ...] = (Hermes(), Qwen3Coder(), Llama3Json())
"""Every format that is known; a new one is a file here and an entry."""
