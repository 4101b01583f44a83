from __future__ import annotations

import msgspec

from turnstile.conversation import ToolSpec
from turnstile.protocols.declaration import Function, declared


def test_a_function_is_declared_as_openais_clients_declare_it():
    function = Function("ls", "Lists.", msgspec.Raw(b'{"type": "object"}'), strict=True)
    declaration = (
        '{"type":"function","function":{"name":"ls","description":"Lists.","parameters":{"type": "object"},'
        '"strict":true}}'
    )
    assert declared(function) == ToolSpec("ls", declaration)


def test_what_is_not_said_is_left_out():
    assert declared(Function("ls")).declaration == '{"type":"function","function":{"name":"ls"}}'
