from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.errors import CallerError
from turnstile.templates.files import ModelFiles, ModelFilesError
from turnstile.templates.tokenizer import AddedToken, Encoded, Tokenizer
from turnstile.tokens import IdRun

pytestmark = pytest.mark.families

FamilyFiles = Callable[[str], ModelFiles]
Load = Callable[[str], Tokenizer]
Reference = Callable[[str], tokenizers.Tokenizer]
BYTE_LEVEL = ("qwen3", "llama3.1", "gpt-oss", "deepseek-v3")
CONTROL_TEXT = ["<|im_end|>", "<|im_start|>", "<tool_call>", "<think>", "<|eot_id|>", "<|end|>", "</s>", "<|im_", "|>"]
TEXTS = st.lists(st.one_of(st.text(max_size=8), st.sampled_from([*CONTROL_TEXT, "\n\n", " \n", "é", "😀", "ﬁ"]))).map(
    "".join
)


def ids(*values: int) -> IdRun:
    return IdRun.of(values)


@pytest.fixture(scope="module")
def load(family_files: FamilyFiles) -> Load:
    return cache(lambda name: Tokenizer.from_json(family_files(name).tokenizer_json))


@pytest.fixture(scope="module")
def reference(family_files: FamilyFiles) -> Reference:
    return cache(lambda name: tokenizers.Tokenizer.from_str(family_files(name).tokenizer_json))


def test_case_k2_text_of_a_control_token_encodes_as_that_token_as_on_an_engines_chat_route(load: Load) -> None:
    assert load("qwen3").encode("say <|im_end|> now") == ids(36790, 220, 151645, 1431)


@pytest.mark.parametrize(
    ("family_name", "sampled", "reencoded"),
    [
        ("qwen3", (198, 198), (271,)),
        ("qwen3", (1818, 332, 269), (1818, 4831)),
        ("llama3.1", (1856, 332, 269), (1856, 4936)),
        ("gpt-oss", (2064, 339, 267), (2064, 35203)),
        ("smollm2", (46206, 270), (1652, 15535)),
        ("smollm2", (198, 198), (1116,)),
    ],
)
def test_sampled_ids_do_not_survive_decoding_and_encoding(
    load: Load, family_name: str, sampled: tuple[int, ...], reencoded: tuple[int, ...]
) -> None:
    tokenizer = load(family_name)
    assert tokenizer.encode(tokenizer.decode(ids(*sampled))) == ids(*reencoded)


@pytest.mark.parametrize("family_name", ["qwen3", "llama3.1", "gpt-oss", "gemma4", "deepseek-v3", "smollm2"])
def test_case_a2_nothing_is_added_around_a_text(load: Load, family_name: str) -> None:
    tokenizer = load(family_name)
    assert (tokenizer.encode(""), tokenizer.decode(tokenizer.encode("plain words"))) == (ids(), "plain words")


@pytest.mark.parametrize("family_name", [*BYTE_LEVEL, "smollm2"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_decoding_is_what_the_library_decodes_and_the_joined_bytes_of_the_tokens(
    load: Load, reference: Reference, family_name: str, data: st.DataObject
) -> None:
    tokenizer = load(family_name)
    drawn = data.draw(st.lists(st.integers(0, tokenizer.size - 1), max_size=20))
    decoded = tokenizer.decode(IdRun.of(drawn))
    assert decoded == reference(family_name).decode(drawn, skip_special_tokens=False)
    assert decoded == b"".join(tokenizer.token_bytes(token_id) for token_id in drawn).decode("utf-8", "replace")


@pytest.mark.parametrize("family_name", [*BYTE_LEVEL, "smollm2"])
@settings(max_examples=40, deadline=None)
@given(text=TEXTS)
def test_encoding_is_what_the_library_encodes_without_special_tokens(
    load: Load, reference: Reference, family_name: str, text: str
) -> None:
    assert load(family_name).encode(text).tolist() == reference(family_name).encode(text, add_special_tokens=False).ids
    long = text + "<|im_start|>A long one, é and 😀.\n\n " * 200
    assert load(family_name).encode(long).tolist() == reference(family_name).encode(long, add_special_tokens=False).ids


@pytest.mark.parametrize("family_name", BYTE_LEVEL)
@settings(max_examples=40, deadline=None)
@given(text=TEXTS)
def test_offsets_cover_the_whole_text_and_belong_to_the_ids_of_plain_encoding(
    load: Load, family_name: str, text: str
) -> None:
    encoded = load(family_name).encode_with_offsets(text)
    assert encoded.ids == load(family_name).encode(text)
    assert {at for start, end in encoded.offsets for at in range(start, end)} == set(range(len(text)))


def test_text_whose_bytes_the_vocabulary_lacks_vanishes_as_in_engines(load: Load) -> None:
    # SmolLM2 has no token for the byte F1, the first one of U+40000.
    tokenizer = load("smollm2")
    assert tokenizer.decode(tokenizer.encode("a\U00040000b")) == "a\ufffd\ufffd\ufffdb"


def test_offsets_begin_with_the_blank_that_belongs_to_a_token(load: Load) -> None:
    # The post-processor of Llama 3 would move them behind it, and a cut would then lose the token.
    assert load("llama3.1").encode_with_offsets("a bc<|eot_id|>") == Encoded(
        ids(64, 18399, 128009), ((0, 1), (1, 4), (4, 14))
    )


def test_case_k1_bytes_of_one_character_share_its_place_and_join_into_it(load: Load) -> None:
    tokenizer = load("qwen3")
    encoded = tokenizer.encode_with_offsets("a🫠b")
    emoji = encoded.ids.slice(1, len(encoded.ids) - 1)
    assert (len(emoji), set(encoded.offsets[1:-1]), tokenizer.decode(emoji)) == (3, {(1, 2)}, "🫠")
    assert b"".join(map(tokenizer.token_bytes, emoji)) == "🫠".encode()
    assert tokenizer.decode(emoji.slice(0, 2)) == "\ufffd"


@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_a_vocabulary_with_byte_fallback_gives_the_bytes_of_every_text(load: Load, text: str) -> None:
    tokenizer = load("gemma4")
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(text))) == text.encode()


def test_a_piece_of_a_byte_fallback_vocabulary_that_looks_like_a_byte_is_that_byte(load: Load) -> None:
    tokenizer = load("gemma4")
    emoji = tokenizer.encode("\U0001fae0\x01")
    assert (tokenizer.decode(emoji), tokenizer.token_bytes(emoji[-1])) == ("\U0001fae0\x01", b"\x01")


def test_a_special_token_gives_its_own_name_as_bytes(load: Load) -> None:
    tokenizer = load("deepseek-v3")
    token_id = tokenizer.id_of("<｜end▁of▁sentence｜>")  # noqa: RUF001
    assert token_id == 1
    assert (tokenizer.token_bytes(token_id), tokenizer.is_special(token_id)) == (
        "<｜end▁of▁sentence｜>".encode(),  # noqa: RUF001
        True,
    )


@pytest.mark.parametrize("token_id", [-1, 151_669, 151_935, 2**31 - 1])
def test_an_id_without_a_token_has_no_bytes(load: Load, token_id: int) -> None:
    tokenizer = load("qwen3")
    assert (tokenizer.size, tokenizer.token_bytes(token_id), tokenizer.is_special(token_id)) == (151_669, b"", False)


def test_a_token_is_found_by_its_text_whether_added_or_of_the_vocabulary(load: Load) -> None:
    found = [load("qwen3").id_of(text) for text in ("<|im_end|>", "<think>", "\n", " Pl", "no such token")]
    assert found == [151645, 151667, 198, 1818, None]


def test_added_tokens_say_whether_engines_hide_them(load: Load) -> None:
    tokenizer = load("qwen3")
    by_text = {token.text: token for token in tokenizer.added}
    assert by_text["<|im_end|>"] == AddedToken(151645, "<|im_end|>", special=True, lstrip=False, rstrip=False)
    assert by_text["<think>"] == AddedToken(151667, "<think>", special=False, lstrip=False, rstrip=False)
    assert not tokenizer.is_special(151667)


def test_truncation_and_padding_of_the_file_are_not_applied(family_files: FamilyFiles) -> None:
    document = json.loads(family_files("smollm2").tokenizer_json)
    document["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    document["padding"] = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "x",
    }
    tokenizer = Tokenizer.from_json(json.dumps(document))
    assert tokenizer.decode(tokenizer.encode("one two three four")) == "one two three four"


def test_half_of_a_surrogate_pair_is_refused_with_its_place(load: Load) -> None:
    with pytest.raises(CallerError, match="Character 2 of the rendered prompt is half of a surrogate pair"):
        load("qwen3").encode("ab\ud800")
    with pytest.raises(CallerError, match="Character 5000 of the rendered prompt is half of a surrogate pair"):
        load("qwen3").encode("a" * 5000 + "\ud800")


def test_a_file_that_is_no_tokenizer_is_refused_with_a_remedy() -> None:
    with pytest.raises(ModelFilesError, match=r"tokenizer\.json cannot be read: .*Give the file"):
        Tokenizer.from_json("{}")


def test_a_vocabulary_whose_tokens_have_no_bytes_of_their_own_is_refused_by_name() -> None:
    text = json.dumps(
        {
            "version": "1.0",
            "added_tokens": [],
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {
                "type": "WordPiece",
                "unk_token": "?",
                "max_input_chars_per_word": 9,
                "vocab": {"?": 0},
                "continuing_subword_prefix": "##",
            },
        }
    )
    with pytest.raises(ModelFilesError, match="decodes with WordPiece"):
        Tokenizer.from_json(text)
