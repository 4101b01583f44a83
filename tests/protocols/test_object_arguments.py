from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.protocols.object_arguments import ODD_ARGUMENTS, arguments_in, input_of


@pytest.mark.parametrize("arguments", ['{"p": "/a"}', "{}", '{"a":{"b":[1,2]}}'])
def test_arguments_that_are_an_object_are_the_input_as_written(arguments):
    assert input_of(arguments) == arguments


@pytest.mark.parametrize("arguments", ['"ls"', "[1]", "3", "{broken", "null"])
def test_other_arguments_are_put_into_an_object_and_read_back_as_they_were(arguments):
    hidden = input_of(arguments)
    assert ODD_ARGUMENTS in hidden
    assert arguments_in(hidden) == arguments


def test_no_arguments_are_an_empty_object():
    assert input_of("") == "{}"


@pytest.mark.parametrize(
    "written", ['{"__arguments__": "x", "b": 1}', '{"__arguments__": 1}', '{"a": "__arguments__"}']
)
def test_an_object_that_only_names_the_member_is_left_alone(written):
    assert arguments_in(written) == written


@given(st.text(min_size=1))
def test_any_arguments_survive_the_way_there_and_back(arguments):
    assert arguments_in(input_of(arguments)) == arguments
