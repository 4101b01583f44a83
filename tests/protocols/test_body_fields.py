"""Fields that are not read."""

from __future__ import annotations

import pytest
from msgspec import Raw

from turnstile.errors import CallerError
from turnstile.protocols.body_fields import unknown_names, unsupported

REFUSED: dict[str, tuple[object, ...]] = {"echo": (False,), "grammar": ("",)}


def test_names_that_are_neither_known_nor_refused_are_told_sorted():
    fields = {"model": Raw(b'"m"'), "zeta": Raw(b"1"), "alpha": Raw(b"2"), "echo": Raw(b"false")}
    assert unknown_names(fields, frozenset({"model"}), REFUSED) == ("alpha", "zeta")


@pytest.mark.parametrize("value", [b"null", b"false"])
def test_a_refused_field_that_asks_for_nothing_is_let_pass(value: bytes):
    assert unknown_names({"echo": Raw(value)}, frozenset(), REFUSED) == ()


@pytest.mark.parametrize("value", [b"true", b'"x"', b"[" + b"1," * 20 + b"1]"])
def test_a_refused_field_that_asks_for_something_is_named(value: bytes):
    with pytest.raises(CallerError) as caught:
        unknown_names({"echo": Raw(value)}, frozenset(), REFUSED)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "echo")


def test_many_long_names_are_kept_short():
    fields = {f"{at:03}" + "x" * 200: Raw(b"1") for at in range(50)}
    names = unknown_names(fields, frozenset(), REFUSED)
    assert (len(names), max(map(len, names))) == (32, 100)


def test_an_unsupported_field_says_what_to_do():
    error = unsupported("a.b", "Leave it out")
    assert (error.status, error.param, str(error)) == (400, "a.b", "`a.b` cannot be served here. Leave it out.")
