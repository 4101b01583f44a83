"""Whose error shape a request gets that got no further than its address."""

from __future__ import annotations

import pytest

from turnstile.server.dialects import dialect_of


@pytest.mark.parametrize(
    ("path", "headers", "name"),
    [
        ("/v1/messages", {}, "anthropic.messages"),
        ("/r/x/v1/messages", {}, "anthropic.messages"),
        ("/r/x/v1/messages/batches/7", {}, "anthropic.messages"),
        ("/r/x/v1/messages/count_tokens", {}, "anthropic.messages"),
        ("/r/x/v1/messagesx", {}, "openai.chat"),
        ("/r/x/v1/chat/completions", {}, "openai.chat"),
        ("/v1/models/none", {}, "openai.chat"),
        ("/v1/models/none", {"anthropic-version": "2023-06-01"}, "anthropic.messages"),
        ("/r/v1/messages", {}, "openai.chat"),
        ("/", {}, "openai.chat"),
        ("/v1beta/models/m:generateContent", {}, "google.gemini"),
        ("/r/x/v1beta/models", {}, "google.gemini"),
        ("/r/x/v1/models/a/b:countTokens", {}, "google.gemini"),
        ("/v1/models", {"x-goog-api-key": "k"}, "google.gemini"),
        ("/v1/models", {"x-goog-api-client": "c"}, "google.gemini"),
        ("/v1betax", {}, "openai.chat"),
    ],
)
def test_the_address_tells_the_dialect_and_else_the_headers_do(path: str, headers: dict[str, str], name: str) -> None:
    assert dialect_of(path, headers).name == name
