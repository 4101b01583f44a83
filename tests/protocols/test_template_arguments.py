"""What a request gives to the chat template."""

from __future__ import annotations

import pytest
from msgspec import Raw

from turnstile.errors import CallerError
from turnstile.protocols.template_arguments import template_arguments


def test_arguments_are_written_with_sorted_keys_whatever_their_order():
    more = {"b": Raw(b"[1, 2]"), "a": Raw(b'{"y": 1, "x": null}')}
    assert template_arguments("low", "effort", more) == '{"a":{"x":null,"y":1},"b":[1,2],"reasoning_effort":"low"}'


def test_nothing_said_is_an_empty_object():
    assert template_arguments(None, "effort", None) == "{}"


def test_an_explicit_argument_wins_over_the_effort():
    assert template_arguments("low", "effort", {"reasoning_effort": Raw(b'"x"')}) == '{"reasoning_effort":"x"}'


def test_an_effort_that_is_none_is_refused_by_its_own_field():
    with pytest.raises(CallerError) as caught:
        template_arguments("huge", "reasoning.effort", None)
    assert (caught.value.code, caught.value.param) == ("invalid_value", "reasoning.effort")


def test_an_argument_that_the_request_itself_sets_is_refused():
    with pytest.raises(CallerError) as caught:
        template_arguments(None, "effort", {"messages": Raw(b"[]")})
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "chat_template_kwargs.messages")
