"""Every record comes back from its form on disk as it was."""

from __future__ import annotations

import enum
import math
import types
import typing
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile import journal
from turnstile.conversation import Image, Message, Role, Text
from turnstile.tokens import IdRun, LogprobRun

RECORDS = typing.get_args(journal.Record)

PLAIN = {
    str: st.text(max_size=20),
    int: st.integers(min_value=0, max_value=2**31 - 1),
    float: st.floats(allow_nan=False),
    type(None): st.none(),
    datetime: st.datetimes(timezones=st.just(UTC)),
    IdRun: st.lists(st.integers(min_value=-(2**31), max_value=2**31 - 1), max_size=5).map(IdRun.of),
    LogprobRun: st.lists(st.none() | st.floats(width=32), max_size=5).map(LogprobRun.of),
}


def values_of(kind: object) -> st.SearchStrategy:
    """All values of a type as it is written in a record."""
    arguments = typing.get_args(kind)
    match typing.get_origin(kind):
        case typing.Union | types.UnionType:
            return st.one_of([values_of(argument) for argument in arguments])
        case container if container is tuple and arguments[-1] is ...:
            return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
        case container if container is tuple:
            return st.tuples(*map(values_of, arguments))
        case container if container is frozenset:
            return st.frozensets(values_of(arguments[0]), max_size=3)
        case container if container is dict:
            return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=2)
        case _:
            return PLAIN[kind] if kind in PLAIN else members_of(kind)


def members_of(kind: type) -> st.SearchStrategy:
    if issubclass(kind, enum.Enum):
        return st.sampled_from(kind)
    hints = typing.get_type_hints(kind)
    fields = {name: st.deferred(lambda hint=hints[name]: values_of(hint)) for name in kind.__struct_fields__}
    return st.builds(kind, **fields)


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_record_comes_back_as_it_was(kind, data):
    record = data.draw(values_of(kind))
    assert journal.decode(journal.encode(record)) == record


@given(values=st.lists(st.floats(width=32) | st.none(), min_size=1, max_size=8))
def test_a_log_probability_that_is_no_number_comes_back_as_unknown(values):
    run = LogprobRun.of(values)
    expected = [value if value is not None and math.isfinite(value) else None for value in values]
    assert run.tolist() == expected


@given(body=st.binary(max_size=60))
def test_bytes_that_are_no_record_are_refused(body):
    try:
        record = journal.decode(body)
    except (msgspec.DecodeError, ValueError, TypeError):
        return
    assert journal.decode(journal.encode(record)) == record


def test_every_record_has_a_tag_of_its_own():
    tags = [kind.__struct_config__.tag for kind in RECORDS]
    assert len(set(tags)) == len(RECORDS) == 9


def test_messages_and_choices_of_journals_that_know_no_images_are_still_read():
    message = msgspec.msgpack.encode({"role": "user", "parts": [{"type": "text", "text": "hi"}]})
    assert msgspec.msgpack.decode(message, type=Message) == Message(Role.USER, (Text("hi"),))
    shown = Message(Role.USER, (Text("hi"), Image("ab" * 32, "image/png")))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(shown), type=Message) == shown
