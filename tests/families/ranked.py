"""Vocabularies that are published as ranked byte strings, written as `tokenizer.json`."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from layout import added_token, byte_level, document

from turnstile.templates.tokenizer import byte_characters

_CHARACTERS = byte_characters()

_QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN_FIRST_MARKER = 248044
_QWEN_HIDDEN = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>"
)
_QWEN_SHOWN = (
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
    "<tool_response> </tool_response> <think> </think>"
)
_QWEN_SPEECH = (
    "<|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single> <|audio_pad|>"
)

_TEKKEN_NAMES = (
    "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] "
    "[IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]"
)


def qwen3_5(ranks_file: bytes) -> dict[str, Any]:
    """Qwen3.5's rank file: `base64 rank` a line."""
    rows = (line.split() for line in ranks_file.splitlines() if line)
    ranks = {base64.b64decode(text): int(rank) for text, rank in rows}
    shown = set(_QWEN_SHOWN.split())
    markers = f"{_QWEN_HIDDEN} {_QWEN_SHOWN} {_QWEN_SPEECH}".split()
    added = [added_token(_QWEN_FIRST_MARKER + at, text, special=text not in shown) for at, text in enumerate(markers)]
    return _ranked(ranks, 0, added, _QWEN_SPLIT, {"type": "NFC"})


def tekken(tekken_file: bytes) -> dict[str, Any]:
    """Mistral's tekken file; its markers come before the ranks."""
    data = json.loads(tekken_file)
    reserved = data["config"]["default_num_special_tokens"]
    size = data["config"]["default_vocab_size"] - reserved
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in data["vocab"][:size]}
    own = {entry["rank"]: entry["token_str"] for entry in data.get("special_tokens") or []}
    names = (own or dict(enumerate(_TEKKEN_NAMES.split()))) | {32: "[ARGS]", 33: "[CALL_ID]"}
    added = [added_token(at, names.get(at, f"<SPECIAL_{at}>")) for at in range(reserved)]
    return _ranked(ranks, reserved, added, data["config"]["pattern"], None)


def _ranked(
    ranks: Mapping[bytes, int], shift: int, added: list[dict[str, Any]], split: str, normalizer: dict[str, Any] | None
) -> dict[str, Any]:
    pattern = {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False}
    return document(
        # Markers that stand before the ranks must be in the vocabulary too: `tokenizers` gives an added token that
        # it does not know from there the next free id, whatever id it was declared with.
        vocab={token["content"]: token["id"] for token in added if token["id"] < shift}
        | {_spelled(text): rank + shift for text, rank in ranks.items()},
        merges=_merges(ranks),
        added=added,
        normalizer=normalizer,
        pre_tokenizer={"type": "Sequence", "pretokenizers": [pattern, byte_level()]},
        decoder=byte_level(),
        model={"ignore_merges": True},
    )


def _spelled(text: bytes) -> str:
    return "".join(_CHARACTERS[byte] for byte in text)


def _merges(ranks: Mapping[bytes, int]) -> list[list[str]]:
    """For each token the two parts it consists of when its own merge is due."""
    merges: list[list[str]] = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = _parts_before(token, rank, ranks)
        if len(parts) == 2:
            merges.append([_spelled(part) for part in parts])
    return merges


def _parts_before(token: bytes, rank: int, ranks: Mapping[bytes, int]) -> list[bytes]:
    parts = [token[at : at + 1] for at in range(len(token))]
    while len(parts) > 2:
        pairs = ((ranks.get(parts[at] + parts[at + 1], rank), at) for at in range(len(parts) - 1))
        best, at = min(pairs)
        if best >= rank:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts
