"""What a JSON schema asks for and a grammar lets pass: keywords that `turnstile.parsing.schema` writes no rule for.

Source: JSON Schema 2020-12, core and validation, and the older words that tools still send. Annotations such as
`title` ask for nothing and are left aside.
"""

from __future__ import annotations

from collections.abc import Iterator

from turnstile.parsing.jsontext import JsonValue

MAX_REPEATS = 1000
"""llama.cpp writes every allowed repetition out; larger bounds are not enforced."""
_NEVER: dict[str, JsonValue] = dict.fromkeys((
    "$dynamicRef", "$recursiveRef", "contains", "dependencies", "dependentRequired", "dependentSchemas", "format", "if",
    "maxContains", "maxProperties", "maximum", "minContains", "minimum", "multipleOf", "not", "pattern",
    "patternProperties", "prefixItems", "propertyNames",
)) | {
    "additionalItems": True, "exclusiveMaximum": False, "exclusiveMinimum": False, "minProperties": 0,
    "unevaluatedItems": True, "unevaluatedProperties": True, "uniqueItems": False,
}  # fmt: skip
"""Keywords without a rule, and the value with which each asks for nothing."""
_COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
_OF_A_KIND = _COUNTS | {"additionalProperties", "items", "properties", "required", "type"}
"""What has a rule only where it stands in a place of a known kind."""
_OF_TEXTS = frozenset({"anyOf", "const", "enum", "maxLength", "minLength", "oneOf"})


def left_out(node: JsonValue) -> Iterator[str]:
    """The keywords of a place of a known kind, `$ref` followed and `allOf` put in, that its rule does not enforce."""
    if not isinstance(node, dict):
        return
    yield from (key for key, value in node.items() if _is_ignored(key, value))
    if isinstance(node.get("items"), list) or node.get("items") is False:
        yield "items"
    members, required = node.get("properties"), node.get("required")
    if isinstance(required, list) and any(not isinstance(members, dict) or name not in members for name in required):
        yield "required"


def left_out_of_any(node: JsonValue) -> Iterator[str]:
    """The same of a place whose rule is that of any value, or is written for another place."""
    yield from left_out(node)
    if isinstance(node, dict):
        yield from (key for key, value in node.items() if key in _OF_A_KIND and _asks(value))


def left_out_of_text(node: JsonValue) -> Iterator[str]:
    """The same of a place whose rule is that of any text."""
    yield from left_out(node)
    if isinstance(node, dict):
        yield from _OF_TEXTS.intersection(node)


def _is_ignored(key: str, value: JsonValue) -> bool:
    if key in _NEVER:
        nothing = _NEVER[key]
        return type(value) is not type(nothing) or value != nothing
    return key == "allOf" or (key in _COUNTS and not (isinstance(value, int) and value <= MAX_REPEATS))


def _asks(value: JsonValue) -> bool:
    return value is not True and value not in ({}, [])
