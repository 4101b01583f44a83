"""What Prometheus may ask: counts and latencies, never content, and never a label that grows with use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from turnstile.errors import TurnstileError
from turnstile.exchange.repeats import Repeat
from turnstile.history.forest import Forest
from turnstile.reports.drift_watch import Seen
from turnstile.server.call_report import NO_STATUS, CallReport, Prompted, Took
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.shapes import TokenCounts

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_OWN_SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
"""For what takes milliseconds where all is well."""


class Metrics:
    """The figures of one server, in a registry of their own."""

    def __init__(self, open_rollouts: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self._calls = self._counter("calls", "Answered requests of agents", "dialect", "history", "outcome")
        self._prompts = self._counter("prompts", "Planned calls by how their prompt came about", "history")
        self._tokens = self._counter(
            "tokens",
            "Tokens of planned calls: prompt (of which held and added), completion",
            "side",
        )
        self._masked = self._counter(
            "call_masked_tokens", "Sampled tokens that were known not to be trainable when their call ended", "reason"
        )
        self._fates = self._counter(
            "finished_tokens",
            "Sampled tokens of closed rollouts by what becomes of them: trainable, masked or discarded",
            "fate",
            "reason",
        )
        self._repeats = self._counter(
            "repeats", "Requests that were answered by an earlier request's call: coalesced or replayed", "how"
        )
        self._gone = self._counter("clients_gone", "Requests whose client left before the last byte")
        self._continued = self._counter(
            "continuations", "How often an answer was taken up again that an engine gave up"
        )
        self._statuses = self._counter("answers", "Requests of agents by the HTTP status of the answer", "status")
        self._drift = self._counter(
            "drift_calls",
            "Answered calls by what a client of text would have sent: equal, a kind of drift, or not_compared",
            "result",
        )
        self._drift_tokens = self._counter(
            "drift_tokens", "Sampled tokens in compared prompts, and the wrong ones", "side"
        )
        self._times = _Times(self.registry)
        # Finding a label's figure costs more than counting.
        self._sides = {side: self._tokens.labels(side) for side in ("prompt", "held", "added", "completion")}
        Gauge("turnstile_open_rollouts", "Rollouts in memory", registry=self.registry).set_function(open_rollouts)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"turnstile_{name}", what, labels, registry=self.registry)

    def answered(self, report: CallReport) -> None:
        """Count one request of an agent that is over."""
        self._calls.labels(report.dialect, report.prompted.history, report.outcome).inc()
        if report.status != NO_STATUS:
            self._statuses.labels(str(report.status)).inc()
        if report.client_gone:
            self._gone.inc()
        if report.repeat != Repeat.FRESH:
            self._repeats.labels(report.repeat).inc()
        elif report.call_id and report.prompted.history != "none":
            self._planned(report.prompted)
        self._times.spent(report.prompted.engine, report.took)

    def _planned(self, call: Prompted) -> None:
        self._prompts.labels(call.history).inc()
        self._sides["prompt"].inc(call.prompt_ids)
        self._sides["held"].inc(call.reused_ids)
        self._sides["added"].inc(call.prompt_ids - call.reused_ids)
        self._sides["completion"].inc(call.sampled_ids)
        for reason, count in call.masked.items():
            self._masked.labels(reason).inc(count)
        if call.continuations:
            self._continued.inc(call.continuations)

    def closed(self, forest: Forest) -> None:
        """Count what becomes of the tokens of a closed rollout; blocks. None are counted if it cannot be exported."""
        with contextlib.suppress(TurnstileError):
            self.finished(assemble(forest).token_counts)

    def finished(self, counts: TokenCounts) -> None:
        """Count what becomes of the tokens of a rollout that was closed."""
        self._fates.labels("trainable", "").inc(counts.trainable)
        for reason, count in counts.masked.items():
            self._fates.labels("masked", reason).inc(count)
        for reason, count in counts.discarded.items():
            self._fates.labels("discarded", reason).inc(count)

    def compared(self, seen: Seen) -> None:
        """Count one call whose prompt was compared with a text client's, or could not be."""
        if seen.run is None:
            self._drift.labels("not_compared").inc()
            return
        self._drift.labels(seen.difference.kind.value if seen.difference else "equal").inc()
        self._drift_tokens.labels("sampled").inc(seen.run.sampled)
        self._drift_tokens.labels("wrong").inc(seen.difference.wrong if seen.difference else 0)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)


class _Times:
    """Where the time of calls goes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = _histogram(registry, "call_seconds", "From request to last byte", _SECONDS)
        self._added = _histogram(
            registry,
            "added_seconds",
            "What Turnstile itself took for a call: all that was no wait for an engine, a queue, a hold or the client",
            _OWN_SECONDS,
        )
        self._stages = _histogram(
            registry,
            "stage_seconds",
            "What a call waited for, or spent: queue, hold, plan, store",
            _OWN_SECONDS + _SECONDS[-4:],
            "stage",
        )
        self._engine = _histogram(
            registry, "engine_seconds", "From the first request to the engine to its last id", _SECONDS, "engine"
        )
        self._first = _histogram(
            registry,
            "engine_first_token_seconds",
            "From the first request to the engine to its first id",
            _SECONDS,
            "engine",
        )
        self._of_stage = {stage: self._stages.labels(stage) for stage in ("queue", "hold", "plan", "store")}

    def spent(self, engine: str, took: Took) -> None:
        """Count what one request took, `engine` being where it was sampled."""
        self._seconds.observe(took.total_s)
        if took.added_s is not None:
            self._added.observe(took.added_s)
        stages = (("queue", took.queue_s), ("hold", took.hold_s), ("plan", took.plan_s), ("store", took.stored_s))
        for stage, spent_s in stages:
            if spent_s is not None:
                self._of_stage[stage].observe(spent_s)
        if took.engine_s is not None:
            self._engine.labels(engine).observe(took.engine_s)
        if took.first_token_s is not None:
            self._first.labels(engine).observe(took.first_token_s)


def _histogram(
    registry: CollectorRegistry, name: str, what: str, buckets: tuple[float, ...], *labels: str
) -> Histogram:
    return Histogram(f"turnstile_{name}", what, labels, buckets=buckets, registry=registry)
