from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.protocols.sse import comment, json_event, word_event


def test_an_event_is_a_data_line_and_a_blank_line():
    assert json_event(b'{"a":1}') == b'data: {"a":1}\n\n'


def test_a_named_event_says_its_name_first():
    assert json_event(b"{}", "ping") == b"event: ping\ndata: {}\n\n"


def test_a_comment_starts_with_a_colon():
    assert comment("keep-alive") == b": keep-alive\n\n"


def test_a_word_stands_bare():
    assert word_event("[DONE]") == b"data: [DONE]\n\n"


@settings(deadline=None, max_examples=60)
@given(st.text())
def test_a_clients_line_splitter_never_cuts_an_event_inside_its_json(text: str):
    event = json_event(json.dumps({"t": text}, ensure_ascii=False).encode())
    lines = event.decode().splitlines()
    assert lines[1:] == [""]
    assert json.loads(lines[0].removeprefix("data: ")) == {"t": text}
