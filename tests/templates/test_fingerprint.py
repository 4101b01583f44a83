from __future__ import annotations

import json
from typing import Any

import pytest

from turnstile.conversation import Message, Role, Text
from turnstile.generation import Head
from turnstile.templates.fingerprint import head_of
from turnstile.templates.render import Template
from turnstile.templates.tokenizer import Tokenizer


def tokenizer(*pieces: str) -> Tokenizer:
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    model = {"type": "BPE", "vocab": {piece: at for at, piece in enumerate(pieces)}, "merges": []}
    document = {"version": "1.0", "added_tokens": [], "pre_tokenizer": step, "decoder": step, "model": model}
    return Tokenizer.from_json(json.dumps(document))


def system(*texts: str) -> tuple[Message, ...]:
    return (Message(Role.SYSTEM, tuple(Text(text) for text in texts)),)


PLAIN: dict[str, Any] = {
    "model": "m",
    "tokenizer": tokenizer("a", "b"),
    "template": Template("{{ messages }}", {"bos_token": "<s>"}),
    "kwargs": '{"enable_thinking":true,"style":{"b":1,"a":2}}',
    "tools": ('{"type":"function","function":{"name":"f"}}', '{"type":"function","function":{"name":"g"}}'),
    "leading_system": system("Be brief."),
}


def fingerprint(**changes: Any) -> str:
    return head_of(**{**PLAIN, **changes}).fingerprint


def test_a_head_names_all_that_it_is_made_of() -> None:
    assert head_of(**PLAIN) == Head(
        fingerprint=fingerprint(),
        model="m",
        tokenizer_sha256=PLAIN["tokenizer"].sha256,
        vocab_size=2,
        chat_template_sha256=PLAIN["template"].sha256,
        template_kwargs=PLAIN["kwargs"],
        tools=PLAIN["tools"],
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "other"},
        {"tokenizer": tokenizer("b", "a")},
        {"template": Template("{{ messages }} ", {"bos_token": "<s>"})},
        {"template": Template("{{ messages }}", {"bos_token": "<t>"})},
        {"kwargs": "{}"},
        {"kwargs": '{"enable_thinking":true,"style":{"a":2,"b":1}}'},
        {"tools": PLAIN["tools"][::-1]},
        {"tools": ('{"function":{"name":"f"},"type":"function"}', PLAIN["tools"][1])},
        {"tools": ()},
        {"leading_system": system("Be brief")},
        {"leading_system": ()},
        {"leading_system": system("Be", "brief.")},
        {"leading_system": system("Be brief.") * 2},
    ],
)
def test_whatever_changes_the_beginning_of_a_prompt_changes_the_fingerprint(changes: dict[str, Any]) -> None:
    assert fingerprint(**changes) != fingerprint()


@pytest.mark.parametrize(
    "changes",
    [
        {"kwargs": '{"style": {"b": 1, "a": 2}, "enable_thinking": true}'},
        {"tools": tuple(tool.replace(":", " : ") for tool in PLAIN["tools"])},
        {"template": Template("{{ messages }}", {"bos_token": "<s>", "pad_token": ""})},
    ],
)
def test_blanks_in_json_and_the_order_of_template_arguments_do_not_count(changes: dict[str, Any]) -> None:
    assert fingerprint(**changes) == fingerprint()


def test_a_system_message_without_text_is_the_same_however_it_is_empty() -> None:
    assert fingerprint(leading_system=system("")) == fingerprint(leading_system=system())


def test_fingerprints_are_the_same_in_every_process() -> None:
    assert fingerprint() == "384c905c969ea914ab4ee37f909aa987178ef4b8538338e15b0d03c1adfb6d64"


def test_half_a_surrogate_pair_in_a_system_text_does_not_break_the_fingerprint() -> None:
    assert fingerprint(leading_system=system("\ud800")) != fingerprint(leading_system=system("\ufffd"))
