"""Who may look at how a journal does: for figures and logs, never for what is written."""

from __future__ import annotations

from typing import Protocol, final

import msgspec

from turnstile.errors import StoreError
from turnstile.journal import Record


class Commit(msgspec.Struct, frozen=True):
    """One transaction that is durable."""

    appends: int
    """Callers that shared it."""
    stored_bytes: int
    """Of all records in it."""
    took_s: float
    """All of it, in seconds."""
    synced_s: float
    """Its last step, which writes the log ahead; with `Durability.POWER` that is where the disk is waited for."""


class JournalWatch(Protocol):
    """Told how a journal does; everything must return at once."""

    def committed(self, commit: Commit) -> None:
        """A transaction is durable. From the journal's own thread."""
        ...

    def failed(self, error: StoreError) -> None:
        """A transaction could not be written, and all of it is refused. From the journal's own thread."""
        ...

    def appended(self, record: Record, waited_s: float) -> None:
        """A record is durable, and whoever appended it waited so many seconds. On that one's event loop."""
        ...


@final
class Unwatched:
    """Nobody looks."""

    def committed(self, commit: Commit) -> None:
        """Do nothing."""

    def failed(self, error: StoreError) -> None:
        """Do nothing."""

    def appended(self, record: Record, waited_s: float) -> None:
        """Do nothing."""
