"""A generateContent request as it stands on the wire.

Source: Google's reference of the Generative Language API v1beta as of the `google-genai` package 3.6, and recordings
of gemini-cli 0.61. Members that are not named here are skipped, except at the top and in `generationConfig`, where
they are noticed by name. Google takes each name in two spellings, and one element for a list of one (`gemini_names`).
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Raw

from turnstile.protocols.body_fields import (
    ENGINE_REFUSED,
    Count,
    Penalty,
    Probability,
    StopString,
    unknown_names,
)
from turnstile.protocols.gemini_names import Names, Spelling, camel_case, names_of
from turnstile.protocols.json_body import Fields, check_text, fields_of, read_json, wrong_value

_NULL = Raw(b"null")
_INT32 = 2**31 - 1

Name: TypeAlias = Annotated[str, Meta(min_length=1)]
TopLogprobs: TypeAlias = Annotated[int, Meta(ge=0, le=20)]


class WireBlob(msgspec.Struct, frozen=True, rename="camel"):
    """Bytes, in base64."""

    mime_type: str | None = None
    data: str | None = None


class WireFunctionCall(msgspec.Struct, frozen=True, rename="camel"):
    """A call that the model made."""

    name: Name
    args: Raw = _NULL
    id: str | None = None


class WireFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file by its address."""

    mime_type: str | None = None
    file_uri: str | None = None


class WireResultPart(msgspec.Struct, frozen=True, rename="camel"):
    """Media beside a function's response."""

    inline_data: WireBlob | None = None
    file_data: Raw = _NULL


class WireFunctionResponse(msgspec.Struct, frozen=True, rename="camel"):
    """What a function answered."""

    name: str | None = None
    response: Raw = _NULL
    id: str | None = None
    parts: list[WireResultPart] | None = None


class WirePart(msgspec.Struct, frozen=True, rename="camel"):
    """One part of a content: exactly one of its kinds is there."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    inline_data: WireBlob | None = None
    function_call: WireFunctionCall | None = None
    function_response: WireFunctionResponse | None = None
    file_data: Raw = _NULL
    executable_code: Raw = _NULL
    code_execution_result: Raw = _NULL
    tool_call: Raw = _NULL
    tool_response: Raw = _NULL


class WireContent(msgspec.Struct, frozen=True, rename="camel"):
    """What one side said."""

    role: str | None = None
    parts: list[WirePart] | None = None


class WireFunctionDeclaration(msgspec.Struct, frozen=True, rename="camel"):
    """A function that the client offers."""

    name: Name
    description: str | None = None
    parameters: Raw = _NULL
    """In Google's subset of OpenAPI's schemas."""
    parameters_json_schema: Raw = _NULL


class WireFunctionCallingConfig(msgspec.Struct, frozen=True, rename="camel"):
    """How free the model is to call functions."""

    mode: str | None = None
    allowed_function_names: list[str] | None = None


class WireToolConfig(msgspec.Struct, frozen=True, rename="camel"):
    """How tools are used."""

    function_calling_config: WireFunctionCallingConfig | None = None


class WireThinkingConfig(msgspec.Struct, frozen=True, rename="camel"):
    """Whether the model is to think, and whether the client wants to read it."""

    include_thoughts: bool | None = None
    thinking_budget: Annotated[int, Meta(ge=-1, le=_INT32)] | None = None
    thinking_level: str | None = None


class WireGenerationConfig(msgspec.Struct, frozen=True, rename="camel"):
    """How to sample. `min_p` and `repetition_penalty` are extensions, as in a chat body."""

    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_p: Probability | None = None
    top_k: Annotated[float, Meta(ge=-1, le=_INT32)] | None = None
    """Google's SDKs write it as a float."""
    max_output_tokens: Count | None = None
    stop_sequences: Annotated[list[StopString], Meta(max_length=64)] | None = None
    candidate_count: Annotated[int, Meta(ge=1, le=128)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    response_mime_type: str | None = None
    response_schema: Raw = _NULL
    response_json_schema: Raw = _NULL
    response_logprobs: bool | None = None
    logprobs: TopLogprobs | None = None
    thinking_config: WireThinkingConfig | None = None
    min_p: Probability | None = None
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=10.0)] | None = None


class GenerateRequest(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a request for an answer, or for its prompt's length. `chat_template_kwargs` is an extension."""

    contents: Annotated[list[WireContent], Meta(min_length=1)]
    system_instruction: WireContent | None = None
    tools: list[Fields] | None = None
    tool_config: WireToolConfig | None = None
    generation_config: WireGenerationConfig | None = None
    chat_template_kwargs: dict[str, Raw] | None = None


class _Tool(msgspec.Struct, frozen=True, rename="camel"):
    function_declarations: list[WireFunctionDeclaration] | None = None


class _CountRequest(msgspec.Struct, frozen=True, rename="camel"):
    generate_content_request: Raw = _NULL


_TRANSPORT = frozenset({"labels", "model", "safetySettings", "serviceTier", "store"})
"""Fields that change nothing about what is sampled here; accepted and not acted on."""

_REFUSED: dict[str, tuple[object, ...]] = {"cachedContent": ("",), **ENGINE_REFUSED}
"""Fields that would change the answer and cannot be served, each with the values that ask for nothing."""

_CONFIG_TRANSPORT = frozenset({"audioTimestamp", "mediaResolution"})
_CONFIG_REFUSED: dict[str, tuple[object, ...]] = {
    "audioTranscriptionConfig": (), "enableAffectiveDialog": (False,), "enableEnhancedCivicAnswers": (False,),
    "imageConfig": (), "modelSelectionConfig": (), "responseFormat": (), "responseModalities": (["TEXT"], []),
    "routingConfig": (), "speechConfig": (), "translationConfig": (),
}  # fmt: skip
_CONFIG = "generationConfig"

_request_decoder = msgspec.json.Decoder(GenerateRequest)
_declarations_decoder = msgspec.json.Decoder(_Tool)
_tool_names = names_of(_Tool)
_names = Names({**names_of(GenerateRequest).members, "tools": Names(_tool_names.members, is_list=True)})
_spelling = Spelling(_names)
_count_spelling = Spelling(Names({"generateContentRequest": _names, **_names.members}))
_count_decoder = msgspec.json.Decoder(_CountRequest)


def read_request(body: bytes) -> tuple[GenerateRequest, tuple[str, ...]]:
    """The request in a body, and the names of its members that are not known here, sorted.

    Raises: CallerError that names the field which is no such thing or cannot be served.
    """
    check_text(body)
    return _read(_spelling.applied(body))


def read_count(body: bytes) -> tuple[GenerateRequest, tuple[str, ...]]:
    """The request whose prompt is to be counted: the body itself, or the request in it.

    Raises: CallerError as `read_request` does.
    """
    check_text(body)
    spelled = _count_spelling.applied(body)
    inner = read_json(_count_decoder, spelled).generate_content_request
    return _read(spelled if bytes(inner) == b"null" else bytes(inner))


def declarations_of(tool: Fields, path: str) -> list[WireFunctionDeclaration]:
    """The functions of one entry of `tools`.

    Raises: CallerError that names the field at fault.
    """
    return read_json(_declarations_decoder, msgspec.Raw(msgspec.json.encode(tool)), path).function_declarations or []


def _read(body: bytes) -> tuple[GenerateRequest, tuple[str, ...]]:
    fields = fields_of(body)
    known = frozenset(_names.members) | _TRANSPORT
    unknown = unknown_names(fields, known, _REFUSED)
    configured = fields.get(_CONFIG)
    if configured is not None and bytes(configured) != b"null":
        unknown = (*unknown, *_unknown_settings(configured))
    return read_json(_request_decoder, body), tuple(sorted(unknown))


def _unknown_settings(configured: Raw) -> tuple[str, ...]:
    """Names in `generationConfig` that are not known, behind its own name."""
    named = {f"{_CONFIG}.{name}": value for name, value in fields_of(configured, _CONFIG).items()}
    known = {camel_case(name) for name in WireGenerationConfig.__struct_fields__} | _CONFIG_TRANSPORT
    refused = {f"{_CONFIG}.{name}": values for name, values in _CONFIG_REFUSED.items()}
    return unknown_names(named, frozenset(f"{_CONFIG}.{name}" for name in known), refused)


def whole_number(value: float | None, path: str) -> int | None:
    """An integer that came as a float.

    Raises: CallerError if it is none.
    """
    if value is None:
        return None
    if not value.is_integer():
        raise wrong_value(path, "an integer", str(value))
    return int(value)
