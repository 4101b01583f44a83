"""Where log lines go, and what becomes of them when nobody reads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from io import FileIO

import pytest

from turnstile.server.log_sink import LogSink

PATIENCE_S = 30.0


def said(missed: int) -> bytes:
    return b"missed %d\n" % missed


@pytest.fixture
def pipe() -> Iterator[tuple[FileIO, FileIO]]:
    """Both ends; a file that is closed twice is closed once, unlike a descriptor."""
    reading, writing = os.pipe()
    with FileIO(reading) as reader, FileIO(writing, "w") as writer:
        yield reader, writer


def read_until(reader: FileIO, holds: Callable[[bytes], bool]) -> bytes:
    heard = b""
    while not holds(heard):
        heard += os.read(reader.fileno(), 1 << 16)
    return heard


def test_lines_are_written_in_order_and_all_of_them_before_it_is_closed(pipe: tuple[FileIO, FileIO]) -> None:
    reading, writing = pipe
    sink = LogSink(writing.fileno(), said)
    lines = [b"line %d\n" % at for at in range(1200)]
    for line in lines:
        sink.put(line)
    sink.close(PATIENCE_S)
    writing.close()
    assert read_until(reading, lambda heard: heard.endswith(lines[-1])) == b"".join(lines)
    assert sink.dropped == 0


def test_a_reader_that_does_not_read_stops_nobody_and_is_told_how_much_it_missed(pipe: tuple[FileIO, FileIO]) -> None:
    reading, writing = pipe
    sink = LogSink(writing.fileno(), said, waiting_lines=10)
    line = b"x" * 65_535 + b"\n"
    putting = threading.Thread(target=lambda: [sink.put(line) for _ in range(200)])
    putting.start()
    putting.join(PATIENCE_S)
    assert not putting.is_alive()
    dropped = sink.dropped
    assert dropped >= 200 - 10 - 10 - 1
    heard = read_until(reading, lambda heard: b"missed" in heard and heard.endswith(b"\n"))
    sink.put(b"after\n")
    heard += read_until(reading, lambda heard: heard.endswith(b"after\n"))
    sink.close(PATIENCE_S)
    assert heard.count(line) == 200 - dropped
    assert heard.endswith(b"missed %d\nafter\n" % dropped)


def test_closing_waits_for_a_reader_that_does_not_read_only_so_long(pipe: tuple[FileIO, FileIO]) -> None:
    reading, writing = pipe
    sink = LogSink(writing.fileno(), said)
    for _ in range(10):
        sink.put(b"x" * 65_535 + b"\n")
    sink.close(patience_s=0.01)
    sink.put(b"too late\n")
    assert sink.dropped == 1
    reading.close()


def test_lines_that_nobody_can_read_any_more_are_counted(pipe: tuple[FileIO, FileIO]) -> None:
    reading, writing = pipe
    reading.close()
    sink = LogSink(writing.fileno(), said)
    sink.put(b"a\n")
    deadline = time.monotonic() + PATIENCE_S
    while not sink.dropped and time.monotonic() < deadline:
        time.sleep(0.01)
    sink.put(b"b\n")
    sink.close(PATIENCE_S)
    assert sink.dropped == 2
