"""What a model folder says about text: tokenizer, chat template, special tokens, stop tokens.

Nothing is read from disk here; whoever calls has the texts.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from turnstile.errors import TurnstileError

SPECIAL_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Names under which templates know special tokens (transformers' `special_tokens_map`)."""


class ModelFilesError(TurnstileError):
    """A file of the model cannot be used as it is: the mistake of whoever started the program."""

    code = "model_files"


class StopSource(enum.StrEnum):
    """Who says that a token ends an answer."""

    GENERATION_CONFIG = "generation_config"
    """`eos_token_id` of `generation_config.json`."""
    TOKENIZER_CONFIG = "tokenizer_config"
    """`eos_token` of `tokenizer_config.json`."""
    GGUF = "gguf"
    """`tokenizer.ggml.{eos,eot,eom}_token_id` of a gguf."""
    ENGINE_RULE = "engine_rule"
    """llama.cpp ends at it because of its text, whatever the gguf says."""


class StopToken(msgspec.Struct, frozen=True):
    """A token that ends an answer, by text or by id."""

    token: str | int
    source: StopSource


class ModelFiles(msgspec.Struct, frozen=True):
    """A model's text side, wherever it came from."""

    tokenizer_json: str
    """In the form of the `tokenizers` library."""
    chat_template: str
    """Empty: the model has none."""
    special_tokens: Mapping[str, str]
    """What templates get to see: `bos_token`, `eos_token`, ...; only those that the model has."""
    stop_tokens: tuple[StopToken, ...]
    """Where answers end: what every engine stops at unless it is told otherwise."""
    tool_use_template: str = ""
    """A second template for requests with tools (transformers takes the one named `tool_use`); empty: the same."""

    def template_for(self, tools: tuple[str, ...]) -> str:
        """The template's text for a request with these tool declarations, chosen as transformers does."""
        return self.tool_use_template if tools and self.tool_use_template else self.chat_template

    @classmethod
    def from_texts(
        cls,
        tokenizer_json: str,
        tokenizer_config_json: str | None = None,
        chat_template: str | None = None,
        generation_config_json: str | None = None,
        special_tokens_map_json: str | None = None,
    ) -> ModelFiles:
        """Read a Hugging Face model folder's texts; None = the file is not there.

        A template of its own (`chat_template.jinja`) wins over the one in `tokenizer_config.json`, as in
        transformers. Of named templates, `default` is the template and `tool_use` the one for requests with
        tools; where only `tool_use` exists it is both. Special tokens come from `tokenizer_config.json`, else
        from `special_tokens_map.json`. Stop tokens are those of `generation_config.json` and the tokenizer's
        `eos_token`, as vLLM takes them.

        Raises: ModelFilesError if a text is no JSON object or has an entry of another form than transformers writes.
        """
        config = _json_object(tokenizer_config_json, "tokenizer_config.json")
        older = _json_object(special_tokens_map_json, "special_tokens_map.json")
        generation = _json_object(generation_config_json, "generation_config.json")
        named = {"default": chat_template} if chat_template else dict(_named_templates(config.get("chat_template")))
        default = named.get("default") or named.get("tool_use", "")
        tool_use = named.get("tool_use", "")
        specials = {
            role: text for role in SPECIAL_ROLES if (text := _token_text(config, role) or _token_text(older, role))
        }
        return cls(
            tokenizer_json=tokenizer_json,
            chat_template=default,
            special_tokens=specials,
            stop_tokens=_stop_tokens(generation, specials.get("eos_token", "")),
            tool_use_template="" if tool_use == default else tool_use,
        )


def _json_object(text: str | None, file_name: str) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFilesError(f"{file_name} is not JSON: {error}", "Fetch the model's files again") from error
    if not isinstance(value, dict):
        raise ModelFilesError(f"{file_name} holds no JSON object", "Fetch the model's files again")
    return cast("dict[str, Any]", value)


def _named_templates(entry: object) -> Iterator[tuple[str, str]]:
    match entry:
        case None:
            return
        case str():
            yield "default", entry
        case list():
            for item in cast("list[object]", entry):
                match item:
                    case {"name": str(name), "template": str(template)}:
                        yield name, template
                    case _:
                        raise _unknown_form("chat_template")
        case _:
            raise _unknown_form("chat_template")


def _token_text(config: Mapping[str, Any], role: str) -> str:
    match config.get(role):
        case None:
            return ""
        case str(text):
            return text
        case {"content": str(text)}:
            return text
        case _:
            raise _unknown_form(role)


def _stop_tokens(generation: Mapping[str, Any], eos_token: str) -> tuple[StopToken, ...]:
    entry: object = generation.get("eos_token_id")
    ids = cast("list[object]", entry) if isinstance(entry, list) else [] if entry is None else [entry]
    stops: list[StopToken] = []
    for token_id in ids:
        if not isinstance(token_id, int) or isinstance(token_id, bool):
            raise _unknown_form("eos_token_id")
        stops.append(StopToken(token_id, StopSource.GENERATION_CONFIG))
    if eos_token:
        stops.append(StopToken(eos_token, StopSource.TOKENIZER_CONFIG))
    return tuple(stops)


def _unknown_form(entry: str) -> ModelFilesError:
    return ModelFilesError(
        f"`{entry}` of the model's configuration has a form that transformers does not write",
        "Compare the file with the one that the model was published with",
    )
