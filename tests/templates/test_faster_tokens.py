"""`fastokens` beside the reference."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.errors import CallerError
from turnstile.templates.checks_tokens import fuzz_texts
from turnstile.templates.faster_tokens import fast_encoder, is_installed
from turnstile.templates.files import ModelFiles
from turnstile.templates.served import Served
from turnstile.templates.tokenizer import Tokenizer

pytest.importorskip("fastokens")
pytestmark = pytest.mark.families


@pytest.fixture(scope="module")
def both(served: Callable[[str], Served], family_files: Callable[[str], ModelFiles]) -> tuple[Tokenizer, Tokenizer]:
    """The reference, and the same with the faster one."""
    encode = fast_encoder(family_files("qwen3").tokenizer_json)
    assert not isinstance(encode, str)
    reference = served("qwen3").tokenizer
    return reference, reference.encoding_with(encode)


def test_the_package_is_found_where_it_is_installed() -> None:
    assert is_installed()


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(text=st.text(max_size=60) | st.sampled_from(tuple(fuzz_texts(("<|im_end|>", "<think>")))))
def test_ids_and_their_places_are_those_of_the_reference(both: tuple[Tokenizer, Tokenizer], text: str) -> None:
    reference, faster = both
    assert faster.encode_with_offsets(text) == reference.encode_with_offsets(text)
    assert faster.encode(text) == reference.encode(text)


def test_half_a_surrogate_pair_is_the_callers_error_as_with_the_reference(both: tuple[Tokenizer, Tokenizer]) -> None:
    with pytest.raises(CallerError, match=r"Character 1 .* surrogate"):
        both[1].encode("a\ud800")


def test_a_tokenizer_that_it_does_not_know_is_refused_in_words(family_files: Callable[[str], ModelFiles]) -> None:
    written = json.loads(family_files("smollm2").tokenizer_json)
    words = {"type": "WordLevel", "vocab": {"a": 0, "<unk>": 1}, "unk_token": "<unk>"}
    refused = fast_encoder(json.dumps(written | {"model": words}))
    assert isinstance(refused, str)
    assert refused.startswith("fastokens refuses the tokenizer: ")
