"""What a line of the log is."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.server.logs import Level, Log, LogForm, json_line, logging_to, printable, silent_log, text_line

AT = datetime(2026, 3, 4, 5, 6, 7, 89_000, tzinfo=UTC)


@contextmanager
def heard(form: LogForm) -> Iterator[tuple[Log, list[str]]]:
    """A log, and the lines that were in it when the block was left."""
    reading, writing = os.pipe()
    lines: list[str] = []
    with logging_to(writing, form, lambda: AT) as log:
        yield log, lines
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as whole:
        lines += whole.read().splitlines()


def test_a_line_for_programs_is_one_json_object_with_time_level_and_event_first() -> None:
    line = json_line(AT, Level.WARNING, "call", {"rollout": "r1", "added_ms": 1.5, "masked": {"not_finite": 2}})
    assert line == (
        b'{"time":"2026-03-04T05:06:07.089Z","level":"warning","event":"call","rollout":"r1","added_ms":1.5,'
        b'"masked":{"not_finite":2}}\n'
    )


def test_a_line_for_people_leaves_out_what_is_empty() -> None:
    fields = {"rollout": "r1", "error": "", "masked": {}, "why": "a b", "engine_ms": 12.0, "client_gone": False}
    assert text_line(AT, Level.INFO, "call", fields) == (
        b'05:06:07 call rollout=r1 why="a b" engine_ms=12 client_gone=no\n'
    )
    several = {"reasons": ("a", "b"), "masked": {"x": 1, "y": 2}, "n": 3}
    assert text_line(AT, Level.ERROR, "down", several) == b'05:06:07 ERROR down reasons="a; b" masked=x:1,y:2 n=3\n'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("r1", "r1"),
        ("a\nb\r\x00", "a\\nb\\r\\x00"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),
        ("right\u202eleft\u2028", "right\\u202eleft\\u2028"),
        ("\udc80", "\\udc80"),
        ("größe", "größe"),
        ("x" * 501, "x" * 500 + "..."),
    ],
)
def test_what_could_end_a_line_or_command_a_terminal_is_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(), st.dictionaries(st.text(), st.integers(0, 9)), st.lists(st.text()))
def test_a_line_is_always_one_line_of_printable_text(text: str, counts: dict[str, int], several: list[str]) -> None:
    fields = {"a": text, "b": counts, "c": tuple(several)}
    for write in (json_line, text_line):
        line = write(AT, Level.INFO, "call", fields).decode()
        assert line.endswith("\n")
        assert line[:-1].isprintable()


def test_a_log_tells_in_the_form_that_was_asked_for() -> None:
    with heard(LogForm.JSON) as (log, lines):
        log.tell("start", {"port": 7})
        assert log.is_on
    with heard(LogForm.TEXT) as (log, more):
        log.tell("start", {"port": 7}, Level.ERROR)
    assert [json.loads(line) for line in lines] == [
        {"time": "2026-03-04T05:06:07.089Z", "level": "info", "event": "start", "port": 7}
    ]
    assert more == ["05:06:07 ERROR start port=7"]


def test_a_log_that_is_off_tells_nothing() -> None:
    with heard(LogForm.OFF) as (log, lines):
        log.tell("start", {})
        logging.getLogger("turnstile.calls").debug("x")
    assert (lines, log.is_on, log.dropped, silent_log().is_on) == ([], False, 0, False)


def test_what_code_logs_of_an_error_is_a_line_with_its_kind_and_place_and_without_its_words() -> None:
    with heard(LogForm.JSON) as (_, lines):
        try:
            raise KeyError("what the user said")
        except KeyError:
            logging.getLogger("turnstile.calls").exception("call %s failed\nmore", "x", extra={"rollout_id": "r1"})
        logging.getLogger("uvicorn.error").warning("odd")
        logging.getLogger("uvicorn.error").info("quiet")
    first, second = (json.loads(line) for line in lines)
    (frame,) = first.pop("stack")
    assert first == {
        "time": "2026-03-04T05:06:07.089Z",
        "level": "error",
        "event": "log",
        "logger": "turnstile.calls",
        "rollout": "r1",
        "message": "call %s failed",
        "error": "KeyError",
    }
    assert "test_logs.py" in frame
    assert "what the user said" not in "".join(lines)
    assert (second["level"], second["message"]) == ("warning", "odd")


def test_the_loggers_are_as_they_were_when_the_log_is_closed() -> None:
    logger = logging.getLogger("turnstile")
    before = list(logger.handlers), logger.propagate
    with heard(LogForm.TEXT):
        assert not logger.propagate
    assert (list(logger.handlers), logger.propagate) == before
