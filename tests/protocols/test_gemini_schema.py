from __future__ import annotations

import json

import msgspec
import pytest

from turnstile.errors import CallerError
from turnstile.protocols.gemini_schema import json_schema_of


def schema_of(schema: object) -> object:
    return json.loads(json_schema_of(msgspec.Raw(json.dumps(schema).encode()), "parameters"))


def test_types_are_lower_cased_at_any_depth_and_the_order_stays():
    google = {
        "type": "OBJECT",
        "properties": {
            "z": {"type": "STRING", "description": "TYPE: OBJECT", "enum": ["A", "B"], "format": "enum"},
            "type": {"type": "ARRAY", "items": {"type": "NUMBER", "minimum": 1.50}},
            "any": {"anyOf": [{"type": "INTEGER"}, {"type": "BOOLEAN"}]},
        },
        "required": ["z"],
        "propertyOrdering": ["type", "z"],
    }
    assert schema_of(google) == {
        "type": "object",
        "properties": {
            "z": {"type": "string", "description": "TYPE: OBJECT", "enum": ["A", "B"]},
            "type": {"type": "array", "items": {"type": "number", "minimum": 1.5}},
            "any": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
        },
        "required": ["z"],
    }
    assert list(schema_of(google)["properties"]) == ["z", "type", "any"]


def test_what_may_be_null_says_so():
    assert schema_of({"type": "STRING", "nullable": True, "enum": ["a"]}) == {
        "type": ["string", "null"],
        "enum": ["a", None],
    }
    assert schema_of({"type": "STRING", "nullable": False}) == {"type": "string"}


def test_numbers_in_strings_are_numbers_and_both_spellings_are_read():
    google = {
        "type": "array",
        "min_items": "2",
        "maxItems": 3,
        "items": {"maxLength": "x", "any_of": [{"type": "NULL"}]},
    }
    assert schema_of(google) == {
        "type": "array",
        "minItems": 2,
        "maxItems": 3,
        "items": {"maxLength": "x", "anyOf": [{"type": "null"}]},
    }


def test_numbers_stay_as_they_were_written():
    written = b'{"minimum":1.50,"default":{"type":"KEPT"},"example":"OBJECT"}'
    assert json_schema_of(msgspec.Raw(written), "p") == written.decode()


def test_a_json_schema_passes_unchanged():
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "additionalProperties": False}
    assert schema_of(schema) == schema


@pytest.mark.parametrize(
    ("schema", "param"),
    [("[1]", "p"), ('"x"', "p"), ('{"properties": 3}', "p.properties"), ('{"anyOf": {}}', "p.anyOf")],
)
def test_what_is_no_schema_is_refused_by_name(schema, param):
    with pytest.raises(CallerError) as caught:
        json_schema_of(msgspec.Raw(schema.encode()), "p")
    assert caught.value.param == param
