"""What Prometheus is told of memory, disk and waiting."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from turnstile.exchange.rollouts import Opening, Policies, Rollouts
from turnstile.server.logs import silent_log
from turnstile.server.resource_metrics import ResourceMetrics, lag_histogram, process_metrics
from turnstile.store import Journal, Reader


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def size_of_journal(store: Path) -> int:
    return sum(file.stat().st_size for file in store.glob("journal.sqlite3*"))


async def test_rollouts_that_leave_memory_and_return_are_counted_and_the_journals_files_measured(
    registry: CollectorRegistry, journal: Journal, tmp_path: Path
) -> None:
    with Reader.open(tmp_path) as reader:
        policies = Policies(memory_bytes=1, quiet_s=-1.0)
        rollouts = Rollouts(journal, reader, lambda: datetime(2026, 1, 1, tzinfo=UTC), policies)
        registry.register(ResourceMetrics(rollouts, journal, silent_log()))
        for name in ("a", "b"):
            await rollouts.create(Opening(name), "")
        await rollouts.get("a")

        def value(name: str) -> float | None:
            return registry.get_sample_value(f"turnstile_{name}")

        assert value("evictions_total") == rollouts.residents.times_left >= 2
        assert value("lazy_returns_total") == rollouts.residents.times_returned == 1
        assert value("resident_bytes") == rollouts.residents.bytes
        assert (value("journal_waiting"), value("log_dropped_total")) == (0, 0)
        files = size_of_journal(tmp_path)
        assert value("journal_file_bytes") == files > 0
        assert (value("disk_bytes") or 0) > files


async def test_a_store_that_is_gone_has_no_size(registry: CollectorRegistry, journal: Journal, tmp_path: Path) -> None:
    with Reader.open(tmp_path) as reader:
        rollouts = Rollouts(journal, reader, lambda: datetime(2026, 1, 1, tzinfo=UTC), Policies())
    registry.register(ResourceMetrics(rollouts, journal, silent_log()))
    journal.directory = tmp_path / "nowhere"
    assert registry.get_sample_value("turnstile_disk_bytes") is None
    assert registry.get_sample_value("turnstile_resident_bytes") == 0


def test_the_loops_delay_and_the_process_are_measured(registry: CollectorRegistry) -> None:
    lag_histogram(registry).observe(0.004)
    process_metrics(registry)
    assert registry.get_sample_value("turnstile_loop_lag_seconds_bucket", {"le": "0.005"}) == 1
    assert registry.get_sample_value("turnstile_loop_lag_seconds_bucket", {"le": "0.0025"}) == 0
    assert (registry.get_sample_value("process_resident_memory_bytes") or 0) > 1 << 20
    assert (registry.get_sample_value("process_open_fds") or 0) > 2
