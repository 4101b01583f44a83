"""How an answer ends that has to break off in the middle of its body, and why the log is quiet about it.

A web server closes a connection whose application raises behind the first bytes, which is all that a dialect can
do whose clients take an error event for an end. To the web server that is a bug and worth a traceback; here it is
the answer's intended end, and the failure behind it is in the journal.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator
from typing import final

_SERVER_LOG = "uvicorn.error"


@final
class StreamSevered(Exception):
    """Raised out of the application when all was done for a request and its connection is to be cut."""


@contextlib.contextmanager
def unlogged() -> Generator[None]:
    """Keep connections that are cut on purpose out of the web server's log, for as long as the block runs."""
    log = logging.getLogger(_SERVER_LOG)
    quiet = _NotSevered()
    log.addFilter(quiet)
    try:
        yield
    finally:
        log.removeFilter(quiet)


@final
class _NotSevered(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.exc_info is None or not isinstance(record.exc_info[1], StreamSevered)
