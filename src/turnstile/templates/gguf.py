"""Tokenizer, chat template and stop tokens out of a gguf file, as llama.cpp reads them.

Sources: ggml `docs/gguf.md` for the file, llama.cpp `src/llama-vocab.cpp` for what the entries mean. Where llama.cpp
and the model's own `tokenizer.json` differ (llama.cpp never normalises text), llama.cpp is followed, since whoever
has a gguf runs it with llama.cpp.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from turnstile.templates.files import ModelFiles, ModelFilesError, StopSource, StopToken

Value: TypeAlias = "int | float | bool | str | list[Value]"

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_MAX_DEPTH = 4
_REMEDY = "Give the model's own tokenizer with `--tokenizer DIR`"

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
"""Token types that llama.cpp finds in text before it splits the rest."""

_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANKS}"
_QWEN2 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANKS}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_BLANKS}"
)


class _Splitting(msgspec.Struct, frozen=True):
    """How llama.cpp cuts text before it merges bytes."""

    pattern: str
    """Empty: GPT-2's own, which the library has built in."""
    digits_alone: bool = False
    ignore_merges: bool = False
    """A piece that is a token as a whole is never merged from its bytes."""


_SPLITTINGS: Mapping[str, _Splitting] = {
    **dict.fromkeys(("gpt-2", "mpt", "olmo", "phi-2", "exaone4"), _Splitting("")),
    **dict.fromkeys(("smollm", "command-r", "starcoder", "refact"), _Splitting("", digits_alone=True)),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3"), _Splitting(_LLAMA3, ignore_merges=True)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _Splitting(_QWEN2)),
    "qwen35": _Splitting(_QWEN35),
}
"""By `tokenizer.ggml.pre`: those whose ids are tested against llama.cpp's, and names that share their rule."""

_ENDINGS = (
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s> <|eom_id|> "
    "<EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response> [e~[ "
    "<｜end▁of▁sentence｜> <|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] "  # noqa: RUF001 - DeepSeek's bars
    "<|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame> <|file_sep|>"
)
_ENDING_TEXTS = frozenset(_ENDINGS.split())
"""Texts of tokens at which llama.cpp ends, whatever the file says; the last two rows are for infilling."""

_ENDING_KEYS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")


class GgufModel(msgspec.Struct, frozen=True):
    """What a gguf says about its model, beside the weights."""

    architecture: str
    name: str
    context_length: int | None
    """Ids that it was trained for; None: the file does not say."""
    files: ModelFiles


class Metadata(msgspec.Struct, frozen=True):
    """The key-value pairs of a gguf."""

    values: Mapping[str, Value]

    def text(self, key: str) -> str:
        """A text; empty if there is none."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def integer(self, key: str) -> int | None:
        """A number; None if there is none."""
        value = self.values.get(key)
        return value if isinstance(value, int) else None

    def texts(self, key: str) -> list[str]:
        """A list of texts; empty if there is none."""
        return [item for item in self._items(key) if isinstance(item, str)]

    def numbers(self, key: str) -> list[float]:
        """A list of numbers; empty if there is none."""
        return [item for item in self._items(key) if isinstance(item, int | float)]

    def _items(self, key: str) -> list[Value]:
        value = self.values.get(key)
        return value if isinstance(value, list) else []


def metadata_of(header: bytes | memoryview) -> Metadata:
    """Read a gguf's key-value pairs; the buffer may be the whole file.

    Raises: ModelFilesError if it is no gguf, is cut off, or is of a version that is not known.
    """
    cursor = _Cursor(memoryview(header))
    try:
        return Metadata(cursor.pairs())
    except (struct.error, UnicodeDecodeError, KeyError) as error:
        raise ModelFilesError("The gguf's header is cut off or damaged", "Fetch the file again") from error


def model_of(header: bytes | memoryview) -> GgufModel:
    """Everything that a gguf says about text. Raises: ModelFilesError as `tokenizer_files` does."""
    metadata = metadata_of(header)
    architecture = metadata.text("general.architecture")
    return GgufModel(
        architecture=architecture,
        name=metadata.text("general.name"),
        context_length=metadata.integer(f"{architecture}.context_length"),
        files=_files(metadata),
    )


def tokenizer_files(header: bytes | memoryview) -> ModelFiles:
    """Rebuild a model's text files from a gguf; ids are those of llama.cpp's `/tokenize`.

    Raises: ModelFilesError if the header cannot be read, or its vocabulary is of a kind that is not known here.
    """
    return _files(metadata_of(header))


class _Cursor:
    """Reads little-endian values one after the other; nothing is read behind the end."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._at = 0

    def pairs(self) -> dict[str, Value]:
        if self._take(4) != b"GGUF":
            raise ModelFilesError("The file is no gguf", "Give a file that begins with `GGUF`")
        version = self._number("I")
        if version not in (2, 3):
            raise ModelFilesError(f"The gguf has version {version}; 2 and 3 are known", "Convert the model again")
        self._number("Q")
        return dict(self._pair() for _ in range(self._number("Q")))

    def _pair(self) -> tuple[str, Value]:
        key = self._text()
        return key, self._value(self._number("I"), _MAX_DEPTH)

    def _value(self, kind: int, depth: int) -> Value:
        if kind == _TEXT:
            return self._text()
        if kind != _ARRAY:
            return self._number(_NUMBERS[kind])
        if depth == 0:
            raise struct.error("arrays nested too deeply")
        item_kind, length = self._number("I"), self._number("Q")
        if item_kind in _NUMBERS:
            return self._numbers(_NUMBERS[item_kind], length)
        return [self._value(item_kind, depth - 1) for _ in range(length)]

    def _numbers(self, code: str, length: int) -> list[Value]:
        return list(struct.unpack(f"<{length}{code}", self._take(struct.calcsize(f"<{code}") * length)))

    def _number(self, code: str) -> Any:  # noqa: ANN401 - int, float or bool, by the code
        return struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}")))[0]

    def _text(self) -> str:
        return self._take(self._number("Q")).decode("utf-8", "replace")

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._buffer):
            raise struct.error("behind the end")
        taken = bytes(self._buffer[self._at : end])
        self._at = end
        return taken


def _files(metadata: Metadata) -> ModelFiles:
    model, pre = metadata.text("tokenizer.ggml.model"), metadata.text("tokenizer.ggml.pre")
    if model != "gpt2":
        raise ModelFilesError(f"The gguf has a vocabulary of kind `{model}`, which cannot be rebuilt here", _REMEDY)
    splitting = _SPLITTINGS.get(pre)
    if splitting is None:
        raise ModelFilesError(f"The gguf splits text as `{pre or 'unnamed'}`, which is not known here", _REMEDY)
    texts = metadata.texts("tokenizer.ggml.tokens")
    types = metadata.numbers("tokenizer.ggml.token_type")
    if not texts or len(texts) != len(types):
        raise ModelFilesError(
            f"The gguf has {len(texts)} tokens and {len(types)} token types", "Convert the model again"
        )
    stops = _stop_tokens(metadata, texts)
    return ModelFiles(
        tokenizer_json=_tokenizer_json(metadata, splitting, {texts[int(stop.token)] for stop in stops}),
        chat_template=metadata.text("tokenizer.chat_template"),
        special_tokens=_special_tokens(metadata, texts),
        stop_tokens=stops,
        tool_use_template=metadata.text("tokenizer.chat_template.tool_use"),
    )


def _tokenizer_json(metadata: Metadata, splitting: _Splitting, endings: set[str]) -> str:
    texts = metadata.texts("tokenizer.ggml.tokens")
    types = metadata.numbers("tokenizer.ggml.token_type")
    added = [
        _added_token(token_id, text, special=kind != _USER_DEFINED or text in endings)
        for token_id, (text, kind) in enumerate(zip(texts, types, strict=True))
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED) or text in endings
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _pre_tokenizers(splitting, byte_level)},
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "ignore_merges": splitting.ignore_merges,
            "vocab": {text: token_id for token_id, text in enumerate(texts)},
            "merges": [merge.split(" ", 1) for merge in metadata.texts("tokenizer.ggml.merges")],
        },
    }
    return json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))


def _pre_tokenizers(splitting: _Splitting, byte_level: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    digits = [{"type": "Digits", "individual_digits": True}] if splitting.digits_alone else []
    if not splitting.pattern:
        return [*digits, {**byte_level, "use_regex": True}]
    pattern = {"type": "Split", "pattern": {"Regex": splitting.pattern}, "behavior": "Isolated", "invert": False}
    return [*digits, pattern, byte_level]


def _added_token(token_id: int, text: str, *, special: bool) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token_id, "content": text, **flags, "special": special}


def _special_tokens(metadata: Metadata, texts: list[str]) -> dict[str, str]:
    roles = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {role: metadata.integer(f"tokenizer.ggml.{key}_token_id") for role, key in roles.items()}
    return {role: texts[token_id] for role, token_id in ids.items() if token_id is not None and token_id < len(texts)}


def _stop_tokens(metadata: Metadata, texts: list[str]) -> tuple[StopToken, ...]:
    """Where llama.cpp ends: the ids that the file names, and every token with an ending's text."""
    named = [metadata.integer(f"tokenizer.ggml.{key}_token_id") for key in _ENDING_KEYS]
    sources = {token_id: StopSource.GGUF for token_id in named if token_id is not None and token_id < len(texts)}
    ending_texts = _ENDING_TEXTS & set(texts)
    # Harmony's <|end|> closes a message and not an answer; Gemma 4's </s> is plain text.
    if {"<|return|>", "<|call|>"} <= ending_texts or {"<|calls|>", "<|flush|>"} <= ending_texts:
        ending_texts -= {"<|end|>"}
    if "<|tool_response>" in ending_texts:
        ending_texts -= {"</s>"}
    for token_id, text in enumerate(texts):
        if text in ending_texts:
            sources.setdefault(token_id, StopSource.ENGINE_RULE)
    return tuple(StopToken(token_id, source) for token_id, source in sources.items())
