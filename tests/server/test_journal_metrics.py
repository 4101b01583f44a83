"""What Prometheus is told of the journal."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from turnstile.server.journal_metrics import JournalMetrics
from turnstile.store.watching import Commit


def test_waits_transactions_bytes_and_refusals_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = JournalMetrics(registry)
    for appends in (1, 3):
        metrics.committed(Commit(appends, 100, 0.5, 0.25))
    metrics.appended(0.125)
    metrics.failed()
    metrics.undelivered()
    names = (
        "append_seconds_sum",
        "commit_seconds_sum",
        "sync_seconds_sum",
        "group_appends_sum",
        "group_appends_count",
        "bytes_total",
        "failures_total",
    )
    assert [registry.get_sample_value(f"turnstile_journal_{name}") for name in names] == [
        0.125, 1.0, 0.5, 4.0, 2.0, 200.0, 1.0,
    ]  # fmt: skip
    assert registry.get_sample_value("turnstile_undelivered_answers_total") == 1.0
