"""What Prometheus may ask of the journal."""

from __future__ import annotations

from typing import final

from prometheus_client import CollectorRegistry, Counter, Histogram

from turnstile.store.watching import Commit

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_GROUPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@final
class JournalMetrics:
    """Figures of one journal. Counted from its thread and from the event loop."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._appends = Histogram(
            "turnstile_journal_append_seconds",
            "How long a record was waited for until it was durable",
            buckets=_SECONDS,
            registry=registry,
        )
        self._commits = Histogram(
            "turnstile_journal_commit_seconds", "How long a transaction took", buckets=_SECONDS, registry=registry
        )
        self._syncs = Histogram(
            "turnstile_journal_sync_seconds",
            "How long the last step of a transaction took, where the disk is waited for with --durability power",
            buckets=_SECONDS,
            registry=registry,
        )
        self._groups = Histogram(
            "turnstile_journal_group_appends", "Appends that shared a transaction", buckets=_GROUPS, registry=registry
        )
        self._bytes = Counter("turnstile_journal_bytes", "Bytes of records that became durable", registry=registry)
        self._failures = Counter(
            "turnstile_journal_failures", "Transactions that could not be written", registry=registry
        )
        self._undelivered = Counter(
            "turnstile_undelivered_answers", "Answers that are recorded and that nobody took", registry=registry
        )

    def committed(self, commit: Commit) -> None:
        """A transaction is durable."""
        self._commits.observe(commit.took_s)
        self._syncs.observe(commit.synced_s)
        self._groups.observe(commit.appends)
        self._bytes.inc(commit.stored_bytes)

    def failed(self) -> None:
        """A transaction could not be written."""
        self._failures.inc()

    def appended(self, waited_s: float) -> None:
        """A record is durable."""
        self._appends.observe(waited_s)

    def undelivered(self) -> None:
        """An answer is recorded that nobody took."""
        self._undelivered.inc()
