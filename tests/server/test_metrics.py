"""What Prometheus is told."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from prometheus_client.parser import text_string_to_metric_families

from turnstile.conversation import Answer, Message, Reply, ReplyFinish, Role, Usage
from turnstile.errors import EngineError
from turnstile.exchange.inflight import Flight
from turnstile.generation import BridgeKind, Forked, Spliced
from turnstile.reasons import ForkReason
from turnstile.reports.drift import Difference, DriftKind, Run, RunKind
from turnstile.reports.drift_cause import Held
from turnstile.reports.drift_watch import Seen
from turnstile.reports.text_client import Conversation
from turnstile.server.metrics import Metrics
from turnstile.tokens import IdRun


def figures(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
        if "bucket" not in sample.name and "created" not in sample.name
    }


def test_calls_are_counted_by_dialect_history_and_outcome_and_tokens_by_side() -> None:
    metrics = Metrics(lambda: 3)
    spliced, forked, gone = (Flight("d", "", f"c{at}") for at in range(3))
    spliced.history = Spliced(BridgeKind.SENTINEL)
    spliced.land(Answer((Reply(Message(Role.ASSISTANT), ReplyFinish.STOP),), Usage(7, 2)))
    forked.history = Forked(ForkReason.MESSAGE_EDITED)
    forked.land(EngineError("down", "x", code="engine_unreachable"))
    for flight in (spliced, spliced, forked, gone):
        metrics.answered("openai.chat", flight, seconds=0.25)
    assert figures(metrics) == pytest.approx(
        {
            ("turnstile_calls_total", ("openai.chat", "spliced", "answered")): 2,
            ("turnstile_calls_total", ("openai.chat", "forked:message_edited", "engine_unreachable")): 1,
            ("turnstile_calls_total", ("openai.chat", "none", "client_gone")): 1,
            ("turnstile_tokens_total", ("prompt",)): 14,
            ("turnstile_tokens_total", ("completion",)): 4,
            ("turnstile_call_seconds_count", ()): 4,
            ("turnstile_call_seconds_sum", ()): 1.0,
            ("turnstile_open_rollouts", ()): 3,
        }
    )


def test_compared_prompts_are_counted_by_what_was_found_and_their_tokens_by_side() -> None:
    metrics = Metrics(lambda: 0)
    said = Conversation((), (), "{}", datetime(2026, 1, 1, tzinfo=UTC))
    run = Run(RunKind.PROMPT, "c1", said, Held(IdRun.of(range(9)), ((2, 6),), ()), trained=1)
    drifted = Difference("prompt of c1", DriftKind.JSON, 3, 3, "", "")
    for seen in (Seen(run), Seen(run, drifted), Seen(run, drifted), Seen(None)):
        metrics.compared(seen)
    found = {name: value for name, value in figures(metrics).items() if "drift" in name[0]}
    assert found == {
        ("turnstile_drift_calls_total", ("equal",)): 1,
        ("turnstile_drift_calls_total", ("json",)): 2,
        ("turnstile_drift_calls_total", ("not_compared",)): 1,
        ("turnstile_drift_tokens_total", ("sampled",)): 12,
        ("turnstile_drift_tokens_total", ("wrong",)): 6,
    }
