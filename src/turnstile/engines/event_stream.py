"""Server-sent events as engines stream them: one JSON text an event, nothing else of the format is used.

Source: WHATWG HTML, section 9.2.6 "Interpreting an event stream"; `data` is the only field that vLLM and SGLang send.
"""

from __future__ import annotations

from collections.abc import Iterator

from turnstile.errors import EngineError

EVENT_LIMIT_BYTES = 128 * 1024 * 1024
"""More than the largest honest event: SGLang repeats the prompt's ids in each, and everything sampled so far."""
_FIELD = b"data"


class EventReader:
    """Bytes as they arrive -> the data of each whole event. An event that was cut off is never told."""

    def __init__(self, limit_bytes: int = EVENT_LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._buffer = bytearray()
        self._searched = 0
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The data of the events that end in this piece.

        Raises: EngineError `engine_broken` if an event does not end within the limit.
        """
        self._buffer += piece
        start = 0
        while (end := self._buffer.find(b"\n", max(start, self._searched))) >= 0:
            line = bytes(self._buffer[start:end]).removesuffix(b"\r")
            start = self._searched = end + 1
            if line:
                self._keep(line)
            elif self._data:
                event = b"\n".join(self._data)
                self._data.clear()
                yield event
        del self._buffer[:start]
        self._searched = len(self._buffer)
        if len(self._buffer) + sum(map(len, self._data)) > self._limit:
            raise EngineError(
                f"The engine's stream has an event of more than {self._limit} bytes",
                "Check that the address is an inference engine's",
                code="engine_broken",
            )

    def _keep(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if field == _FIELD:
            self._data.append(value.removeprefix(b" "))
