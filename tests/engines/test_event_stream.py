from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.engines.event_stream import EventReader
from turnstile.errors import EngineError


def read(pieces, **limits):
    reader = EventReader(**limits)
    return [event for piece in pieces for event in reader.feed(piece)]


def test_each_event_gives_its_data():
    assert read([b'data: {"a": 1}\n\ndata: [DONE]\n\n']) == [b'{"a": 1}', b"[DONE]"]


def test_lines_of_data_of_one_event_are_joined():
    assert read([b"data: [1,\ndata: 2]\n\n"]) == [b"[1,\n2]"]


def test_comments_other_fields_and_carriage_returns_are_no_data():
    assert read([b": waiting\r\n\r\nevent: chunk\r\nid: 7\r\ndata:{}\r\n\r\n"]) == [b"{}"]


def test_an_event_that_was_cut_off_is_not_told():
    assert read([b"data: {}\n\ndata: [1,2]\n"]) == [b"{}"]


def test_an_event_that_never_ends_is_refused():
    with pytest.raises(EngineError, match="more than 10 bytes"):
        read([b"data: ", b"123456"], limit_bytes=10)


def test_lines_of_data_that_never_end_are_refused():
    with pytest.raises(EngineError, match="more than 10 bytes"):
        read([b"data: 123\n"] * 4, limit_bytes=10)


@given(st.lists(st.binary(max_size=5).filter(lambda data: not {10, 13} & set(data))), st.data())
def test_where_the_bytes_are_cut_never_changes_the_events(events, data):
    whole = b"".join(b"data: " + event + b"\n\n" for event in events)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)))) | {0, len(whole)})
    assert read([whole[a:b] for a, b in pairwise(cuts)]) == events
