"""Packages with hand-written bridges."""

from __future__ import annotations

from turnstile.templates.plugins.base import Plugin
from turnstile.templates.plugins.renderers import Renderers

PLUGINS: tuple[Plugin, ...] = (Renderers(),)
