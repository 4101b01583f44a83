from __future__ import annotations

import pytest

from turnstile.parsing.schema import JsonKind
from turnstile.parsing.typedvalue import json_text


@pytest.mark.parametrize(
    ("text", "kinds", "expected"),
    [
        ("5", "", '"5"'),
        ("5", "string", '"5"'),
        ("null", "string", '"null"'),
        ("null", "string null", "null"),
        ("None", "integer null", "null"),
        ("5", "integer", "5"),
        ("+007", "integer", "7"),
        ("5.5", "integer", '"5.5"'),
        ("1e3", "number", "1e3"),
        (".5", "number", "0.5"),
        ("inf", "number", '"inf"'),
        ("True", "boolean", "true"),
        ("yes", "boolean", '"yes"'),
        ('{"a":1}', "object", '{"a":1}'),
        ("{'a': 1}", "object", "\"{'a': 1}\""),
        ("[1]", "object", '"[1]"'),
        ("[1]", "array", "[1]"),
        ("5", "string integer", "5"),
        ("a\nb", "string integer", '"a\\nb"'),
        (" é ", "string", '" é "'),
    ],
)
def test_a_value_is_typed_by_the_kinds_its_schema_allows(text, kinds, expected):
    assert json_text(text, frozenset(JsonKind(kind) for kind in kinds.split())) == expected
