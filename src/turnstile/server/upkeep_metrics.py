"""What Prometheus may ask of a store's upkeep: counts since the start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from turnstile.reasons import DeleteReason
from turnstile.server.upkeep import Upkeep


@final
class UpkeepMetrics(Collector):
    """What a server did for its store on its own."""

    def __init__(self, upkeep: Upkeep) -> None:
        self._upkeep = upkeep

    def collect(self) -> Iterator[Metric]:
        """All families."""
        upkeep = self._upkeep
        yield CounterMetricFamily(
            "turnstile_idle_closed_rollouts", "Rollouts closed because nobody called them", upkeep.closed_idle
        )
        deleted = CounterMetricFamily("turnstile_deleted_attempts", "Attempts deleted, by reason", labels=("reason",))
        for reason in DeleteReason:
            deleted.add_metric((reason.value,), upkeep.deleted[reason.value])
        yield deleted
        yield CounterMetricFamily("turnstile_exported_attempts", "Marks of attempts that left", upkeep.marked)
        yield GaugeMetricFamily(
            "turnstile_retention_failing", "Whether the last pass of retention failed", int(bool(upkeep.trouble))
        )
