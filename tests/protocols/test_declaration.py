from __future__ import annotations

import msgspec
import pytest

from turnstile.conversation import ToolSpec
from turnstile.errors import CallerError
from turnstile.protocols.declaration import Function, declared, offered_name


def test_a_function_is_declared_as_openais_clients_declare_it():
    function = Function("ls", "Lists.", msgspec.Raw(b'{"type": "object"}'), strict=True)
    declaration = (
        '{"type":"function","function":{"name":"ls","description":"Lists.","parameters":{"type": "object"},'
        '"strict":true}}'
    )
    assert declared(function) == ToolSpec("ls", declaration)


def test_what_is_not_said_is_left_out():
    assert declared(Function("ls")).declaration == '{"type":"function","function":{"name":"ls"}}'


def test_a_name_that_no_tool_of_the_request_has_is_refused_where_it_stands() -> None:
    assert offered_name("ls", {"ls", "cat"}, "tool_choice") == "ls"
    with pytest.raises(CallerError, match="`tool_choice` names `rm`, which is not among the tools") as refused:
        offered_name("rm", {"ls", "cat"}, "tool_choice")
    assert (refused.value.code, refused.value.param) == ("invalid_value", "tool_choice")
