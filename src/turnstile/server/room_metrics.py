"""What Prometheus may ask of places and of the disk: read off when it asks, kept nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from turnstile.exchange.places import Places
from turnstile.server.disk import Disk, DiskState


@final
class RoomMetrics(Collector):
    """How much more a server takes."""

    def __init__(self, places: Places, disk: Disk) -> None:
        self._places = places
        self._disk = disk

    def collect(self) -> Iterator[Metric]:
        """All families; free bytes that cannot be told have no sample."""
        yield GaugeMetricFamily("turnstile_running_calls", "Calls that have a place", self._places.running)
        yield GaugeMetricFamily("turnstile_waiting_calls", "Calls that wait for a place", self._places.waiting)
        free = GaugeMetricFamily("turnstile_disk_free_bytes", "On the store's disk, as of the last look")
        if self._disk.free_bytes is not None:
            free.add_metric((), self._disk.free_bytes)
        yield free
        state = GaugeMetricFamily("turnstile_disk_refuses", "What a low disk refuses now", labels=("what",))
        state.add_metric(("rollouts",), int(self._disk.state is not DiskState.ROOMY))
        state.add_metric(("calls",), int(self._disk.state is DiskState.FULL))
        yield state
