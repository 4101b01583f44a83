"""Who looks at a running server: its log, its figures and its health, made together since they tell each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from turnstile.engines.base import Engine
from turnstile.engines.pool import EngineFigures, EnginePool
from turnstile.exchange.rollouts import Rollouts
from turnstile.reports.drift_watch import DriftWatch
from turnstile.server.engine_metrics import EngineMetrics
from turnstile.server.lately import Lately, LoopLag
from turnstile.server.logs import Log
from turnstile.server.metrics import Metrics
from turnstile.server.policy import Policy
from turnstile.server.reporter import Reporter
from turnstile.server.resource_metrics import ResourceMetrics, lag_histogram, process_metrics
from turnstile.server.tracing import UNTRACED, Tracing
from turnstile.server.vitals import (
    Troubles,
    Vitals,
    dropped_lines,
    expired_holds,
    failed_reads,
    failed_writes,
    late_loop,
)
from turnstile.store import Journal


class Watched(msgspec.Struct, frozen=True):
    """The parts of a server that are looked at."""

    rollouts: Rollouts
    journal: Journal
    drift: DriftWatch
    engine: Engine
    policy: Policy
    now: Callable[[], datetime]
    more: Mapping[str, Troubles] = {}
    """What else can be wrong, by a word of ours for it."""


class Observers(msgspec.Struct, frozen=True):
    """Who looks."""

    log: Log
    metrics: Metrics
    reporter: Reporter
    lag: LoopLag
    vitals: Vitals
    tracing: Tracing = UNTRACED

    async def watch(self) -> None:
        """Look at the event loop and at what is wrong, until cancelled."""
        async with asyncio.TaskGroup() as looking:
            looking.create_task(self.lag.watch())
            looking.create_task(self.vitals.watch())


def observers(log: Log, tracing: Tracing, watched: Watched) -> Observers:
    """Begin to look at a server. From now on its journal and its comparisons of prompts tell what they do."""
    metrics = Metrics(lambda: len(watched.rollouts))
    reporter = Reporter(log, metrics)
    watched.journal.watch = reporter
    watched.drift.tell(metrics.compared)
    registry = metrics.registry
    process_metrics(registry)
    registry.register(ResourceMetrics(watched.rollouts, watched.journal, log))
    lag = LoopLag(lag_histogram(registry).observe)
    troubles: dict[str, Troubles] = {
        "held_too_long": expired_holds(lambda: watched.policy.page().engines, watched.now),
        "store_writes": failed_writes(reporter.failed_writes, lambda: reporter.last_failure),
        "store_reads": failed_reads(reporter.failed_calls),
        "loop_late": late_loop(lag),
        "log_dropped": dropped_lines(log, Lately()),
        **watched.more,
    }
    if isinstance(watched.engine, EnginePool):
        registry.register(EngineMetrics(watched.engine, watched.policy))
    return Observers(log, metrics, reporter, lag, Vitals(log, lambda: figures_of(watched.engine), troubles), tracing)


def figures_of(engine: Engine) -> tuple[EngineFigures, ...]:
    """How each engine of a pool is; nothing of one that stands alone."""
    return tuple(engine.figures()) if isinstance(engine, EnginePool) else ()
