"""Fields of a client's body that are not read: which are let pass, and which cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Raw

from turnstile.errors import CallerError
from turnstile.protocols.json_body import Fields, read_json

INT64 = 2**63 - 1

Count: TypeAlias = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Penalty: TypeAlias = Annotated[float, Meta(ge=-2.0, le=2.0)]
Probability: TypeAlias = Annotated[float, Meta(ge=0.0, le=1.0)]
StopString: TypeAlias = Annotated[str, Meta(min_length=1)]

ENGINE_REFUSED: dict[str, tuple[object, ...]] = {
    # vLLM and SGLang: sampling
    "allowed_token_ids": (), "bad_words": ([],), "best_of": (1,), "custom_logit_processor": (), "ebnf": (),
    "guided_choice": (), "guided_grammar": (), "guided_json": (), "guided_regex": (), "ignore_eos": (False,),
    "include_stop_str_in_output": (False,), "length_penalty": (1.0,), "logits_processors": ([],), "min_tokens": (0,),
    "no_stop_trim": (False,), "regex": (), "stop_regex": ([],), "stop_token_ids": ([],), "structural_tag": (),
    "structured_outputs": (), "thinking_token_budget": (), "use_beam_search": (False,),
    # vLLM and SGLang: what is rendered or run
    "add_special_tokens": (False,), "chat_template": (), "documents": ([],), "input_ids": (),
    "kv_transfer_params": (), "lora_path": (), "mm_processor_kwargs": ({},), "truncate_prompt_tokens": (),
    # vLLM and SGLang: what is answered
    "echo": (False,), "include_reasoning": (True,), "prompt_logprobs": (), "return_hidden_states": (False,),
    "return_token_ids": (False,), "return_tokens_as_token_ids": (False,), "separate_reasoning": (True,),
    "skip_special_tokens": (True,), "stream_reasoning": (True,),
    # llama.cpp
    "dry_multiplier": (0,), "dynatemp_range": (0,), "grammar": ("",), "json_schema": (),
    "mirostat": (0,), "n_predict": (-1,), "n_probs": (0,), "post_sampling_probs": (False,), "repeat_penalty": (1,),
    "return_tokens": (False,), "samplers": (), "top_n_sigma": (-1,), "typical_p": (1,), "verbose": (False,),
    "xtc_probability": (0,),
}  # fmt: skip
"""Engines' own fields that would change the answer and cannot be served, each with the values that ask for nothing."""

_LONGEST_HARMLESS_BYTES = 16
_NAMES_KEPT = 32
_NAME_CHARACTERS = 100

_any_decoder: msgspec.json.Decoder[object] = msgspec.json.Decoder(object)


def unknown_names(fields: Fields, known: frozenset[str], refused: Mapping[str, tuple[object, ...]]) -> tuple[str, ...]:
    """Names of a body's members that are neither known nor refused, sorted.

    Args:
        fields: the body's members.
        known: names that are read, or need not be.
        refused: names that cannot be served, each with the values that ask for nothing.

    Raises: CallerError that names a refused one which asks for something.
    """
    unknown = fields.keys() - known
    for name in sorted(unknown & refused.keys()):
        if not _asks_for_nothing(name, fields[name], refused[name]):
            raise unsupported(name, f"Leave `{name}` out")
    names = sorted(name[:_NAME_CHARACTERS] for name in unknown - refused.keys())
    return tuple(names[:_NAMES_KEPT])


def unsupported(path: str, remedy: str) -> CallerError:
    """The error for a field that is well formed and cannot be served."""
    return CallerError(f"`{path}` cannot be served here", remedy, code="unsupported_parameter", param=path)


def _asks_for_nothing(name: str, raw: Raw, nothing: tuple[object, ...]) -> bool:
    if len(bytes(raw)) > _LONGEST_HARMLESS_BYTES:
        return False
    value = read_json(_any_decoder, raw, name)
    return value is None or value in nothing
