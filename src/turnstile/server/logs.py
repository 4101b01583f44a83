"""The log: one line a call and one an event, for people or for programs, and never what was said in a call.

Everything of a client's that stands in a line is an id or a word of ours; what could end a line, colour a terminal or
turn its writing around is written as an escape.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import re
import traceback
from collections.abc import Callable, Generator, Mapping
from datetime import UTC, datetime
from typing import TypeAlias, final

import msgspec

from turnstile.server.log_sink import LogSink

LogValue: TypeAlias = str | int | float | bool | Mapping[str, int] | tuple[str, ...]
"""What stands behind a name in a line."""

LONGEST_TEXT = 500
"""Characters of one value; ids are shorter by far."""
_CLOSING_S = 2.0
_BARE = re.compile(r"[^\s\"=]+")
_FRAMES = 12
LOGGERS = ("turnstile", "uvicorn.error", "asyncio", "aiohttp")
"""Whose warnings and errors become lines."""


class LogForm(enum.StrEnum):
    """How a line is written."""

    AUTO = "auto"
    """As text where standard error is a terminal, else as JSON."""
    JSON = "json"
    """A JSON object."""
    TEXT = "text"
    """The time of day, the event, and `name=value`."""
    OFF = "off"
    """Not at all."""


class Level(enum.StrEnum):
    """How much a line matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def printable(text: str, most: int = LONGEST_TEXT) -> str:
    """A text that can only ever be part of one line: what is not printable is an escape, what is too long is cut."""
    if len(text) > most:
        text = f"{text[:most]}..."
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode() for each in text
    )


def json_line(at: datetime, level: Level, event: str, fields: Mapping[str, LogValue]) -> bytes:
    """A line for programs."""
    head = {"time": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z", "level": level.value, "event": event}
    return msgspec.json.encode(head | {name: _safe(value) for name, value in fields.items()}) + b"\n"


def text_line(at: datetime, level: Level, event: str, fields: Mapping[str, LogValue]) -> bytes:
    """A line for people; what is empty is left out."""
    told = " ".join(f"{name}={_shown(value)}" for name, value in fields.items() if value not in ("", {}, ()))
    shout = "" if level is Level.INFO else f"{level.upper()} "
    return f"{at:%H:%M:%S} {shout}{event} {told}".rstrip().encode() + b"\n"


def _safe(value: LogValue) -> LogValue:
    match value:
        case str():
            return printable(value)
        case tuple():
            return tuple(map(printable, value))
        case Mapping():
            return {printable(name): count for name, count in value.items()}
        case _:
            return value


def _shown(value: LogValue) -> str:
    match value:
        case str():
            text = printable(value)
            return text if _BARE.fullmatch(text) else msgspec.json.encode(text).decode()
        case tuple():
            return _shown("; ".join(value))
        case Mapping():
            return ",".join(f"{printable(name)}:{count}" for name, count in value.items())
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case int():
            return str(value)


@final
class Log:
    """Tells what happens; nobody waits for it, and without a sink it tells nobody."""

    def __init__(self, form: LogForm, sink: LogSink | None, now: Callable[[], datetime]) -> None:
        self._write = json_line if form is LogForm.JSON else text_line
        self._sink = sink
        self._now = now

    @property
    def is_on(self) -> bool:
        """Whether anybody is told anything."""
        return self._sink is not None

    @property
    def dropped(self) -> int:
        """Lines that were not written, in all."""
        return 0 if self._sink is None else self._sink.dropped

    def tell(self, event: str, fields: Mapping[str, LogValue], level: Level = Level.INFO) -> None:
        """Write one line; returns at once, from any thread."""
        if self._sink is not None:
            self._sink.put(self._write(self._now(), level, event, fields))


def silent_log() -> Log:
    """A log that nobody reads."""
    return Log(LogForm.OFF, None, lambda: datetime.now(UTC))


@contextlib.contextmanager
def logging_to(descriptor: int, form: LogForm, now: Callable[[], datetime]) -> Generator[Log]:
    """A log into a file descriptor for the length of the block; libraries' warnings go there too.

    Args:
        descriptor: of standard error, mostly.
        form: how lines are written; `AUTO` is decided by whoever knows where they go.
        now: the clock.
    """
    if form is LogForm.OFF:
        yield silent_log()
        return

    write = json_line if form is LogForm.JSON else text_line
    sink = LogSink(descriptor, lambda missed: write(now(), Level.WARNING, "log_dropped", {"lines": missed}))
    log = Log(form, sink, now)
    handler = _Handler(log)
    before = [(logger, logger.propagate) for logger in map(logging.getLogger, LOGGERS)]
    for logger, _ in before:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield log
    finally:
        for logger, propagated in before:
            logger.removeHandler(handler)
            logger.propagate = propagated
        sink.close(_CLOSING_S)


@final
class _Handler(logging.Handler):
    """What libraries and our own code log, as lines.

    An exception's own words may quote a client, so of it there is its kind and where it was raised.
    """

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, LogValue] = {"logger": record.name}
        rollout_id = getattr(record, "rollout_id", None)
        if isinstance(rollout_id, str):
            fields["rollout"] = rollout_id
        error = record.exc_info[1] if record.exc_info else None
        fields["message"] = str(record.msg).partition("\n")[0]
        if error is not None:
            fields["error"] = type(error).__name__
            frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
            fields["stack"] = tuple(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
        self._log.tell("log", fields, Level.ERROR if record.levelno >= logging.ERROR else Level.WARNING)
