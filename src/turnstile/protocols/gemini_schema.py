"""Google's schemas, made into JSON schemas.

A function's `parameters` and a `responseSchema` are a subset of OpenAPI 3.0 whose types are enum values. Made of them:

    type: "OBJECT"          "object": any name of a type in lower case
    nullable: true          "null" beside the type, and null beside the values of an enum
    minItems: "3"           3: 64-bit integers may be written as strings
    propertyOrdering        nothing: the order of the properties stays the one in which they were written
    format: "enum"          nothing: it says no more than `enum` does

Everything else stays as it was written, in its order: order matters to ids.

Source: `Schema` of the Generative Language API v1beta; the JSON mapping of protocol buffers.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from turnstile.conversation import JsonText
from turnstile.protocols.json_body import Fields, fields_of, json_text, read_json, wrong_value

_LONGEST_DIGITS = 19
_INTEGERS = frozenset({"maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"})
_NO_MEANING = frozenset({"nullable", "propertyOrdering", "property_ordering"})
_CAMEL = {
    "any_of": "anyOf", "additional_properties": "additionalProperties", "max_items": "maxItems",
    "max_length": "maxLength", "max_properties": "maxProperties", "min_items": "minItems",
    "min_length": "minLength", "min_properties": "minProperties",
}  # fmt: skip

_list_decoder: msgspec.json.Decoder[list[Raw]] = msgspec.json.Decoder(list[Raw])


def json_schema_of(raw: Raw, path: str) -> JsonText:
    """The JSON schema that one of Google's is.

    Args:
        raw: as the client wrote it.
        path: the field that holds it.

    Raises: CallerError that names the member at fault.
    """
    if not json_text(raw).startswith("{"):
        raise wrong_value(path, "an object", json_text(raw))
    return json_text(_schema(raw, path))


def _schema(raw: Raw, path: str) -> Raw:
    if bytes(raw)[:1] != b"{":
        return raw
    written = {_CAMEL.get(name, name): value for name, value in fields_of(raw, path).items()}
    is_nullable = bytes(written.get("nullable", Raw(b"false"))) == b"true"
    schema: Fields = {}
    for name, value in written.items():
        if name not in _NO_MEANING and not (name == "format" and bytes(value) == b'"enum"'):
            schema[name] = _member(name, value, f"{path}.{name}")
    return _encoded(_with_null(schema) if is_nullable else schema)


def _member(name: str, value: Raw, path: str) -> Raw:
    match name:
        case "type":
            return Raw(bytes(value).lower())
        case "items" | "additionalProperties":
            return _schema(value, path)
        case "properties" | "$defs" | "defs":
            named = {key: _schema(each, f"{path}.{key}") for key, each in fields_of(value, path).items()}
            return _encoded(named)
        case "anyOf":
            items = read_json(_list_decoder, value, path)
            return _encoded([_schema(each, f"{path}[{at}]") for at, each in enumerate(items)])
        case _ if name in _INTEGERS:
            return _integer(value)
        case _:
            return value


def _integer(value: Raw) -> Raw:
    digits = bytes(value).strip(b'"')
    return Raw(digits) if digits.isdigit() and len(digits) <= _LONGEST_DIGITS else value


def _with_null(schema: Fields) -> Fields:
    """The schema that accepts null too."""
    nullable = dict(schema)
    if "type" in schema:
        nullable["type"] = Raw(b"[" + bytes(schema["type"]) + b',"null"]')
    if bytes(schema.get("enum", Raw(b"")))[:1] == b"[":
        nullable["enum"] = _encoded([*read_json(_list_decoder, schema["enum"]), Raw(b"null")])
    return nullable


def _encoded(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))
