"""Stop tokens, and other engines beside the reference."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from turnstile.conversation import Message
from turnstile.templates.certificate import Parity, StopToken
from turnstile.templates.checks_shapes import NOW
from turnstile.templates.checks_tokens import (
    FUZZ_TEXTS,
    TOKENIZER,
    Faster,
    blank_eaters,
    check_engine,
    check_faster,
    check_stop_tokens,
    fuzz_texts,
    normalised,
)
from turnstile.templates.files import ModelFiles
from turnstile.templates.render import RenderRequest
from turnstile.templates.served import Served
from turnstile.templates.tokenizer import Tokenizer
from turnstile.tokens import IdRun

pytestmark = pytest.mark.families


def test_a_stop_token_must_be_found_again_in_its_own_text(served: Callable[[str], Served]) -> None:
    qwen3 = served("qwen3")
    word, end = qwen3.tokenizer.id_of("hello") or 0, qwen3.tokenizer.id_of("<|im_end|>") or 0
    model = Served("m", qwen3.tokenizer, qwen3.template, qwen3.facts, frozenset({word, end, 10**6}), frozenset({end}))
    assert list(check_stop_tokens(model)) == [
        StopToken(word, "hello", inferred=False, problem="it is a piece of ordinary text"),
        StopToken(end, "<|im_end|>", inferred=True, problem=""),
        StopToken(10**6, "", inferred=False, problem="the vocabulary has no such id"),
    ]


def test_tokens_that_swallow_blanks_or_are_normalised_are_named(
    served: Callable[[str], Served], family_files: Callable[[str], ModelFiles]
) -> None:
    model = served("qwen3")
    assert (blank_eaters(model), normalised(model)) == ((), ())
    changed = json.loads(family_files("qwen3").tokenizer_json)
    flags = {"<|im_end|>": {"rstrip": True}, "<|im_start|>": {"normalized": True}}
    changed["added_tokens"] = [token | flags.get(token["content"], {}) for token in changed["added_tokens"]]
    tokenizer = Tokenizer.from_json(json.dumps(changed))
    other = Served("m", tokenizer, model.template, model.facts, model.stop_ids)
    assert (blank_eaters(other), normalised(other)) == (("<|im_end|>",), ("<|im_start|>",))


def test_fuzz_texts_are_always_the_same() -> None:
    texts = list(fuzz_texts(("<|im_end|>",)))
    assert len(texts) == FUZZ_TEXTS
    assert texts == list(fuzz_texts(("<|im_end|>",)))
    assert any("<|im_end|>" in text for text in texts)
    assert any("文件" in text for text in texts)


def test_what_is_not_there_is_never_called_the_same(served: Callable[[str], Served]) -> None:
    model = served("smollm2")
    assert check_faster(model, Faster(), ("a",)) == (
        Parity("fast tokenizer", "not installed", 0, ""),
        Parity("fast template engine", "not installed", 0, ""),
    )
    assert check_engine(model, None) == Parity("engine", "not run", 0, "no engine was asked")


def test_the_same_engines_are_the_same(served: Callable[[str], Served]) -> None:
    model = served("smollm2")
    faster = Faster(model.tokenizer.encode, model.template.render)
    assert check_faster(model, faster, ("a", "b")) == (
        Parity("fast tokenizer", "same", FUZZ_TEXTS + 2, ""),
        Parity("fast template engine", "same", 48, ""),
    )


def test_one_other_id_or_text_is_found(served: Callable[[str], Served]) -> None:
    model = served("smollm2")

    def encode(text: str) -> IdRun:
        return model.tokenizer.encode(text.replace("\n\n", "\n"))

    def render(request: RenderRequest) -> str:
        return model.template.render(request).rstrip()

    tokens, texts = check_faster(model, Faster(encode, render), ())
    assert (tokens.outcome, texts.outcome) == ("different", "different")
    assert "\\n\\n" in tokens.detail
    assert texts.detail == "another text with 4 messages"


def test_an_engine_that_fails_on_what_the_reference_takes_is_different(served: Callable[[str], Served]) -> None:
    model = served("smollm2")

    def broken(_: object) -> Any:
        raise RuntimeError("out of order")

    tokens, texts = check_faster(model, Faster(broken, broken), ())
    assert (tokens.outcome, tokens.detail) == ("different", "it fails on '文件': out of order")
    assert (texts.outcome, texts.detail) == ("different", "it fails with 4 messages")


def test_an_engine_that_is_installed_and_cannot_be_used_was_not_run(served: Callable[[str], Served]) -> None:
    faster = Faster(unusable=((TOKENIZER, "it refuses"),))
    assert check_faster(served("smollm2"), faster, ()) == (
        Parity("fast tokenizer", "not run", 0, "it refuses"),
        Parity("fast template engine", "not installed", 0, ""),
    )


def test_an_engines_own_prompt_is_held_against_ours(served: Callable[[str], Served]) -> None:
    model = served("qwen3")

    def tokenize(messages: tuple[Message, ...]) -> list[int]:
        return model.tokenizer.encode(model.template.render(RenderRequest(messages=messages, now=NOW))).tolist()

    assert check_engine(model, tokenize) == Parity("engine", "same", 2, "")
    twice = check_engine(model, lambda messages: [0, *tokenize(messages)])
    assert twice == Parity("engine", "different", 1, "from id 0 on with 2 messages")

    def down(_: tuple[Message, ...]) -> list[int]:
        raise OSError("connection refused")

    assert check_engine(model, down) == Parity("engine", "not run", 1, "connection refused")
