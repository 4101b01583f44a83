"""What tracing is where nobody wants it."""

from __future__ import annotations

from turnstile.protocols.chat import CHAT
from turnstile.server.tracing import UNTRACED, Trace, Tracing
from turnstile.server.visit import Visit


def test_without_tracing_a_request_has_no_span_and_engines_are_told_nothing() -> None:
    tracing: Tracing = UNTRACED
    trace: Trace = tracing.begin("/v1/chat/completions", {"traceparent": "00-1-2-01"})
    trace.end(Visit(CHAT, "/v1/chat/completions", "r").report(), None)
    tracing.close()
    assert trace.headers == {}
