"""Panics of Rust code, made with one that `tokenizers` has."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest
import tokenizers
from tokenizers import decoders, models

from turnstile.conversation import Message, Role, Text
from turnstile.templates.faster_render import FastTemplate
from turnstile.templates.panics import Guarded, Panicked
from turnstile.templates.render import RenderRequest, Template
from turnstile.templates.tokenizer import Tokenizer
from turnstile.tokens import IdRun

REQUEST = RenderRequest(messages=(Message(Role.USER, (Text("hello"),)),), now=datetime(2026, 12, 1, tzinfo=UTC))


def panics(_value: object) -> None:
    """An encoding may not be cut into pieces that overlap wholly."""
    words = tokenizers.Tokenizer(models.WordLevel({"a": 0}, "a"))
    words.encode(["a"] * 3, is_pretokenized=True).truncate(2, stride=5)


def test_a_panic_is_a_failure_that_is_told_once_and_is_not_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[str] = []

    def fast(text: str) -> None:
        asked.append(text)
        panics(text)

    guarded = Guarded("fastest", fast)
    with caplog.at_level(logging.WARNING):
        for said in ("fastest panicked: `stride` must be strictly less", "fastest has panicked before"):
            with pytest.raises(Panicked, match=said):
                guarded("a")
    assert asked == ["a"]
    (told,) = caplog.messages
    assert told.startswith("fastest panicked and is not used any more, the reference is: `stride` must be")


def test_what_is_no_panic_passes_as_it_is() -> None:
    assert Guarded("fastest", len)("abc") == 3
    with pytest.raises(TypeError):
        Guarded("fastest", len)(3)  # type: ignore[arg-type]  # for its error

    def interrupted(_text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Guarded("fastest", interrupted)("a")


def test_the_reference_encodes_and_renders_where_an_accelerator_panics() -> None:
    inner = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    inner.decoder = decoders.ByteLevel()
    reference = Tokenizer.from_json(inner.to_str())

    def encode(text: str) -> IdRun:
        panics(text)
        return IdRun()

    def render(request: RenderRequest) -> str:
        panics(request)
        return ""

    assert reference.encoding_with(Guarded("fastest", encode)).encode("ab") == reference.encode("ab")
    template = Template("{{ messages[0].content }}", {})
    assert FastTemplate(template, Guarded("fastest", render)).render(REQUEST) == "hello"
