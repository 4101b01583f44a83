"""Vocabularies that llama.cpp keeps as gguf files without weights, written as `tokenizer.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from layout import added_token, document

from turnstile.templates.gguf import Metadata, metadata_of, tokenizer_files

_SPACE_MARK = "\u2581"
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4

_GEMMA = (
    "<|turn> <turn|> <|channel> <channel|> <|tool> <tool|> <|tool_call> <tool_call|> <|tool_response> "
    '<tool_response|> <|"|> <|think|> <|image> <image|> <|image|> <|audio|> <|video|> <|audio> <audio|>'
)
_GEMMA_MARKERS = frozenset(_GEMMA.split())
_GEMMA_LOW_MARKER = re.compile(r"<\|[\w\"]+>|<\w+\|>|<\|\w+\|>|<(pad|eos|bos|unk|mask)>")
_GEMMA_LOW_IDS = 300


def command_r(file: bytes) -> dict[str, Any]:
    """Command-R's vocabulary; the model's own tokenizer normalises to NFC, which llama.cpp leaves out."""
    tokenizer = smollm2(file)
    tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if not _is_filler(token["content"])]
    return tokenizer | {"normalizer": {"type": "NFC"}}


def smollm2(file: bytes) -> dict[str, Any]:
    """SmolLM2's vocabulary."""
    return json.loads(tokenizer_files(file).tokenizer_json)


def gemma4(file: bytes) -> dict[str, Any]:
    """Gemma 4's vocabulary. The file calls most markers normal tokens, so they are told by their text."""
    metadata = metadata_of(file)
    texts, types = metadata.texts("tokenizer.ggml.tokens"), metadata.numbers("tokenizer.ggml.token_type")
    added = [
        added_token(at, text, special=kind != _USER_DEFINED)
        for at, (text, kind) in enumerate(zip(texts, types, strict=True))
        if text in _GEMMA_MARKERS or (at < _GEMMA_LOW_IDS and _GEMMA_LOW_MARKER.fullmatch(text))
    ]
    return document(
        vocab=_vocab(texts),
        merges=[merge.split(" ") for merge in metadata.texts("tokenizer.ggml.merges")],
        added=added,
        normalizer={"type": "Replace", "pattern": {"String": " "}, "content": _SPACE_MARK},
        pre_tokenizer={
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        decoder=_decoder(),
        model=_byte_fallback(),
    )


def phi3(file: bytes) -> dict[str, Any]:
    """Phi-3's vocabulary: pieces with scores, whose order of merging follows from the scores."""
    metadata = metadata_of(file)
    texts, types = metadata.texts("tokenizer.ggml.tokens"), metadata.numbers("tokenizer.ggml.token_type")
    added = [
        # Every marker behind the first three swallows the blanks after it, but for the end of text.
        added_token(at, text, special=kind != _USER_DEFINED, rstrip=at > 2 and text != "<|endoftext|>")
        for at, (text, kind) in enumerate(zip(texts, types, strict=True))
        if at < 3 or kind in (_CONTROL, _USER_DEFINED)
    ]
    prepend = {"type": "Prepend", "prepend": _SPACE_MARK}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE_MARK}
    return document(
        vocab=_vocab(texts),
        merges=[[left, right] for _, _, left, right in sorted(_scored_merges(metadata), key=lambda merge: merge[:2])],
        added=[token for token in added if not _is_filler(token["content"])],
        normalizer={"type": "Sequence", "normalizers": [prepend, replace]},
        pre_tokenizer=None,
        decoder=_decoder({"type": "Strip", "content": " ", "start": 1, "stop": 0}),
        model=_byte_fallback(),
    )


def _is_filler(text: str) -> bool:
    return re.fullmatch(r"\[PAD\d+\]", text) is not None


def _vocab(texts: list[str]) -> dict[str, int]:
    vocab: dict[str, int] = {}
    for at, text in enumerate(texts):
        if not _is_filler(text):
            vocab.setdefault(text, at)
    return vocab


def _scored_merges(metadata: Metadata) -> Iterator[tuple[float, int, str, str]]:
    texts, types = metadata.texts("tokenizer.ggml.tokens"), metadata.numbers("tokenizer.ggml.token_type")
    scores = metadata.numbers("tokenizer.ggml.scores")
    vocab = _vocab(texts)
    for at, text in enumerate(texts):
        if types[at] != _NORMAL:
            continue
        cuts = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
        halves = sorted(
            (vocab[left], vocab[right], left, right) for left, right in cuts if {left, right} <= vocab.keys()
        )
        for order, (_, _, left, right) in enumerate(halves):
            yield -scores[at], order, left, right


def _decoder(*more: dict[str, Any]) -> dict[str, Any]:
    space = {"type": "Replace", "pattern": {"String": _SPACE_MARK}, "content": " "}
    return {"type": "Sequence", "decoders": [space, {"type": "ByteFallback"}, {"type": "Fuse"}, *more]}


def _byte_fallback() -> dict[str, Any]:
    return {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
