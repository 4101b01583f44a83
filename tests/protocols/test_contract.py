"""What every dialect owes, whichever it is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.errors import CallerError, EngineError
from turnstile.protocols import DIALECTS
from turnstile.protocols.base import Dialect, WireRequest


def test_names_and_paths_are_nobody_elses():
    names = [dialect.name for dialect in DIALECTS]
    paths = [path for dialect in DIALECTS for path in dialect.paths]
    assert (len(set(names)), len(set(paths))) == (len(names), len(paths))
    assert all(path.startswith("/") for path in paths)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@settings(deadline=None, max_examples=60)
@given(body=st.binary(max_size=40) | st.just(b'{"a":' + b"[" * 100_000) | st.just(b"{}") | st.just(b"[]"))
def test_a_body_that_is_no_request_is_refused_with_a_remedy(dialect: Dialect, body: bytes):
    with pytest.raises(CallerError) as caught:
        dialect.decode(WireRequest(body, {}))
    assert caught.value.problem
    assert caught.value.remedy


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_an_error_answer_tells_problem_and_remedy(dialect: Dialect):
    body = dialect.refuse(EngineError("The engine is down", "Start the engine"))
    assert b"The engine is down. Start the engine." in body
