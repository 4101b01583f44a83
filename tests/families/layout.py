"""The outer form of a `tokenizer.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def added_token(token_id: int, text: str, *, special: bool = True, rstrip: bool = False) -> dict[str, Any]:
    """An entry of `added_tokens`."""
    flags = {"single_word": False, "lstrip": False, "rstrip": rstrip, "normalized": False}
    return {"id": token_id, "content": text, **flags, "special": special}


def byte_level() -> dict[str, Any]:
    """The step that writes bytes as characters, without a splitting rule of its own."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def document(
    vocab: Mapping[str, int],
    merges: list[list[str]],
    added: list[dict[str, Any]],
    normalizer: Mapping[str, Any] | None,
    pre_tokenizer: Mapping[str, Any] | None,
    decoder: Mapping[str, Any],
    model: Mapping[str, Any],
) -> dict[str, Any]:
    """A whole `tokenizer.json` with a BPE model."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": {"type": "BPE", **model, "vocab": vocab, "merges": merges},
    }
