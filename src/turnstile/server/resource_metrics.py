"""What Prometheus may ask of memory, disk and waiting: read off when it asks, kept nowhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import final

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from turnstile.exchange.rollouts import Rollouts
from turnstile.server.logs import Log
from turnstile.store import Journal
from turnstile.store.schema import JOURNAL_FILE

_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


def lag_histogram(registry: CollectorRegistry) -> Histogram:
    """How late the event loop was; measured ten times a second."""
    return Histogram(
        "turnstile_loop_lag_seconds",
        "How late the event loop woke who had asked for it: for so long nobody else was served either",
        buckets=_LAG_SECONDS,
        registry=registry,
    )


def process_metrics(registry: CollectorRegistry) -> None:
    """Memory, CPU, start and open files of the process, by the names that Prometheus has for them everywhere."""
    ProcessCollector(registry=registry)


@final
class ResourceMetrics(Collector):
    """Figures of what a server takes. Asked for in a thread: a disk may be slow to answer."""

    def __init__(self, rollouts: Rollouts, journal: Journal, log: Log) -> None:
        self._residents = rollouts.residents
        self._journal = journal
        self._log = log

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield GaugeMetricFamily(
            "turnstile_resident_bytes", "About how much rollouts in memory take", self._residents.bytes
        )
        yield CounterMetricFamily(
            "turnstile_evictions", "Rollouts that left memory for others", self._residents.times_left
        )
        yield CounterMetricFamily(
            "turnstile_lazy_returns", "Rollouts that had left memory and came back", self._residents.times_returned
        )
        yield GaugeMetricFamily(
            "turnstile_journal_waiting", "Appends that wait for the next transaction", self._journal.waiting
        )
        yield CounterMetricFamily(
            "turnstile_log_dropped", "Log lines that were dropped because nobody read fast enough", self._log.dropped
        )
        yield from self._disk()

    def _disk(self) -> Iterator[Metric]:
        total = GaugeMetricFamily("turnstile_disk_bytes", "How large the store's disk is")
        journal = GaugeMetricFamily("turnstile_journal_file_bytes", "How large the journal's files are")
        directory = self._journal.directory
        try:
            size = shutil.disk_usage(directory).total
            files = [file.stat().st_size for file in directory.glob(f"{JOURNAL_FILE}*")]
        except OSError:
            # A file may go away between being listed and being looked at; the next look will have it.
            return
        total.add_metric((), size)
        journal.add_metric((), sum(files))
        yield from (total, journal)
