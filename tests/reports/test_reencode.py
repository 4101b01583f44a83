"""Pieces that are encoded once are the ids of the whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.reports.reencode import Reencoder, cut_tokens
from turnstile.templates.facts import serve
from turnstile.templates.files import ModelFiles
from turnstile.templates.served import Served

pytestmark = pytest.mark.families

FAMILIES = (
    "qwen3", "smollm2", "llama3.1", "gpt-oss", "phi3", "mistral-small-3.2", "gemma3", "glm4.5",
            "deepseek-v3",
)  # fmt: skip
SPECIAL = ["<|im_end|>", "<|im_start|>", "<|eot_id|>", "<|end|>", "<|endoftext|>", "</s>", "<end_of_turn>", "<|user|>",
           "<|return|>", "<|call|>", "<|im_"]  # fmt: skip
TEXTS = st.lists(st.one_of(st.text(max_size=8), st.sampled_from([*SPECIAL, " ", "\n\n", " \n", "a b"]))).map("".join)


@pytest.fixture(scope="module")
def load(family_files: Callable[[str], ModelFiles]) -> Callable[[str], Served]:
    return cache(lambda name: serve(family_files(name), model="m"))


@pytest.mark.parametrize("family_name", FAMILIES)
@settings(max_examples=15, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=3))
def test_a_text_in_pieces_has_the_ids_that_it_has_as_a_whole(
    load: Callable[[str], Served], family_name: str, texts: list[str]
) -> None:
    served = load(family_name)
    reencoder = Reencoder(served)
    for text in [*texts, "".join(texts)]:
        assert reencoder.encode(text) == served.tokenizer.encode(text)


def test_a_text_is_cut_at_stop_tokens_that_stand_for_themselves(load: Callable[[str], Served]) -> None:
    assert "<|im_end|>" in [token.text for token in cut_tokens(load("qwen3"))]


def test_a_piece_is_encoded_once(load: Callable[[str], Served]) -> None:
    served = load("qwen3")
    reencoder = Reencoder(served)
    reencoder.encode("one<|im_end|>two")
    reencoder.encode("one<|im_end|>two<|im_end|>three")
    assert list(reencoder.remembered) == ["one", "<|im_end|>two", "<|im_end|>three"]


def test_what_is_remembered_is_bounded_and_the_oldest_goes(load: Callable[[str], Served]) -> None:
    reencoder = Reencoder(load("qwen3"), kept_characters=10)
    for text in ("one", "two", "one", "three", "four"):
        reencoder.encode(text)
    assert list(reencoder.remembered) == ["three", "four"]


@pytest.mark.parametrize("family_name", FAMILIES)
def test_no_token_that_looks_around_itself_or_is_a_part_of_another_is_a_place_to_cut(
    load: Callable[[str], Served], family_name: str
) -> None:
    served = load(family_name)
    cuts = cut_tokens(served)
    assert all(token.special and not token.lstrip and not token.normalized for token in cuts)
    assert not [
        (cut.text, other.text)
        for cut in cuts
        for other in served.tokenizer.added
        if other is not cut and cut.text in other.text
    ]
