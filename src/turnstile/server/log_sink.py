"""Where log lines go: a bounded queue and one thread that writes, so that nobody ever waits for a log's reader.

A pipe whose reader is slow fills up, and a write to it blocks. Here only the thread blocks; what does not fit into the
queue by then is dropped, counted, and said as soon as a write comes through again (docs/decisions/0033).
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import final

WAITING_LINES = 10_000
"""Lines that may wait to be written."""
_GROUP = 500
"""Lines that are written in one go."""
_REST_S = 0.02
"""Rest after each write, so that a busy server wakes the thread fifty times a second and not with each line."""


@final
class LogSink:
    """Writes lines to a file descriptor from a thread of its own; close it to end the thread."""

    def __init__(self, descriptor: int, said: Callable[[int], bytes], waiting_lines: int = WAITING_LINES) -> None:
        """Start writing.

        Args:
            descriptor: where to; it is not closed.
            said: the line that tells how many were dropped.
            waiting_lines: how many may wait; a line that comes while so many do is dropped.
        """
        self._descriptor = descriptor
        self._said = said
        self._most = waiting_lines
        self._waiting: deque[bytes] = deque()
        self._news = threading.Condition()
        self._closed = False
        self._closing = threading.Event()
        self._told = 0
        self.dropped = 0
        """Lines that were not written, in all."""
        self._thread = threading.Thread(target=self._run, name="turnstile-log", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Have a line written; returns at once. `line` ends in a newline and has no other."""
        with self._news:
            if self._closed or len(self._waiting) >= self._most:
                self.dropped += 1
                return
            self._waiting.append(line)
            self._news.notify()

    def close(self, patience_s: float) -> None:
        """Write what waits, for so many seconds at most: a reader that does not read keeps nobody from ending."""
        with self._news:
            self._closed = True
            self._closing.set()
            self._news.notify()
        self._thread.join(patience_s)

    def _run(self) -> None:
        while True:
            with self._news:
                while not self._waiting and not self._closed:
                    self._news.wait()
                group = [self._waiting.popleft() for _ in range(min(_GROUP, len(self._waiting)))]
                if not group and self._told == self.dropped:
                    return
                missed, self._told = self.dropped - self._told, self.dropped
            if missed:
                # They came when the queue was full, so what is in it is older than they are.
                group.append(self._said(missed))
            self._write(group)
            self._closing.wait(_REST_S)

    def _write(self, group: list[bytes]) -> None:
        left = memoryview(b"".join(group))
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            # Nobody reads any more. There is nowhere to say so but in the figures.
            with self._news:
                self.dropped += len(group)
                self._told = self.dropped
