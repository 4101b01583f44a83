"""What Prometheus may ask: counts and latencies, never content."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from turnstile.conversation import Answer
from turnstile.errors import TurnstileError
from turnstile.exchange.inflight import Flight
from turnstile.generation import history_header
from turnstile.reports.drift_watch import Seen

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """The figures of one server, in a registry of their own."""

    def __init__(self, open_rollouts: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self._calls = Counter(
            "turnstile_calls", "Answered requests of agents", ("dialect", "history", "outcome"), registry=self.registry
        )
        self._tokens = Counter("turnstile_tokens", "Tokens by side", ("side",), registry=self.registry)
        self._drift = Counter(
            "turnstile_drift_calls",
            "Answered calls by what a client of text would have sent: equal, a kind of drift, or not_compared",
            ("result",),
            registry=self.registry,
        )
        self._drift_tokens = Counter(
            "turnstile_drift_tokens",
            "Sampled tokens in compared prompts, and the wrong ones",
            ("side",),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "turnstile_call_seconds", "From request to last byte", buckets=_SECONDS, registry=self.registry
        )
        Gauge("turnstile_open_rollouts", "Rollouts in memory", registry=self.registry).set_function(open_rollouts)

    def answered(self, dialect: str, flight: Flight, seconds: float) -> None:
        """Count one answered request."""
        history = history_header(flight.history) if flight.history else "none"
        match flight.outcome:
            case Answer(usage=usage):
                self._calls.labels(dialect, history, "answered").inc()
                self._tokens.labels("prompt").inc(usage.prompt_tokens)
                self._tokens.labels("completion").inc(usage.completion_tokens)
            case TurnstileError(code=code):
                self._calls.labels(dialect, history, code).inc()
            case None:
                self._calls.labels(dialect, history, "client_gone").inc()
        self._seconds.observe(seconds)

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
