"""What Prometheus may ask of engines and of the policy: read off when it asks, kept nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from turnstile.engines.pool import EnginePool
from turnstile.server.policy import Policy

_LABELS = ("engine",)


@final
class EngineMetrics(Collector):
    """Figures of each engine, by its host and port."""

    def __init__(self, pool: EnginePool, policy: Policy) -> None:
        self._pool = pool
        self._policy = policy

    def collect(self) -> Iterator[Metric]:
        """All families; one that is not known of an engine has no sample for it."""
        up = GaugeMetricFamily("turnstile_engine_up", "Whether the engine may be given calls", labels=_LABELS)
        running = GaugeMetricFamily("turnstile_engine_running", "Requests that it works on for us", labels=_LABELS)
        capacity = GaugeMetricFamily("turnstile_engine_capacity", "Sequences that it samples at once", labels=_LABELS)
        failures = CounterMetricFamily("turnstile_engine_failures", "Requests that it failed", labels=_LABELS)
        returns = CounterMetricFamily("turnstile_engine_returns", "How often it came back", labels=_LABELS)
        for each in self._pool.figures():
            named = (each.name,)
            up.add_metric(named, int(each.is_up))
            running.add_metric(named, each.running)
            failures.add_metric(named, each.failures)
            returns.add_metric(named, each.returns)
            if each.capacity is not None:
                capacity.add_metric(named, each.capacity)
        yield from (up, running, capacity, failures, returns)
        yield CounterMetricFamily(
            "turnstile_engine_moves", "Calls that went to another engine than their rollout's last", self._pool.moves
        )
        yield from self._of_the_policy()

    def _of_the_policy(self) -> Iterator[Metric]:
        version = GaugeMetricFamily("turnstile_policy_version", "As announced last", labels=_LABELS)
        held = GaugeMetricFamily("turnstile_policy_held", "Whether its calls are held", labels=_LABELS)
        waiting = GaugeMetricFamily("turnstile_policy_waiting", "Requests that are held", labels=_LABELS)
        for each in self._policy.page().engines:
            named = (each.engine,)
            held.add_metric(named, int(each.held_until is not None))
            waiting.add_metric(named, each.waiting)
            if each.version is not None:
                version.add_metric(named, each.version)
        yield from (version, held, waiting)
