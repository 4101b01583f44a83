"""What Prometheus is told of engines and of the policy."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from turnstile.engines.base import Capabilities
from turnstile.engines.pool import EnginePool, Member
from turnstile.exchange.holding import Gate
from turnstile.exchange.policy_log import Announcement
from turnstile.server.engine_metrics import EngineMetrics
from turnstile.server.policy import Policy
from turnstile.store import Journal, Reader

CAPABILITIES = Capabilities("llamacpp", "b1", ("m",), 100, 2, 10, "", frozenset(), frozenset(), 5, "count")


def member(name: str, concurrency: int | None, problem: str = "") -> Member:
    class Alone:
        capabilities = msgspec.structs.replace(CAPABILITIES, concurrency=concurrency)

    return Member(name, Alone(), problem=problem)  # type: ignore[arg-type]


async def test_each_engine_has_its_health_load_and_version_and_what_is_unknown_has_no_sample(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    with Reader.open(tmp_path) as reader:
        policy = Policy.restored(journal, reader, ("a:1", "b:2"), Gate(lambda: datetime.now(UTC)))
    pool = EnginePool([member("a:1", 4), member("b:2", None, "It is down.")])
    await policy.announce(Announcement(7, engine="a:1"))
    await policy.hold("b:2", 60)
    pool.members["b:2"].failures = 3
    pool.seat("r", "gone:9")
    registry = CollectorRegistry()
    registry.register(EngineMetrics(pool, policy))
    async with pool.members["a:1"].open():
        text = generate_latest(registry).decode()
    journal.close()
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found == {
        ("turnstile_engine_up", "a:1"): 1,
        ("turnstile_engine_up", "b:2"): 0,
        ("turnstile_engine_running", "a:1"): 1,
        ("turnstile_engine_running", "b:2"): 0,
        ("turnstile_engine_capacity", "a:1"): 4,
        ("turnstile_engine_failures_total", "a:1"): 0,
        ("turnstile_engine_failures_total", "b:2"): 3,
        ("turnstile_engine_returns_total", "a:1"): 0,
        ("turnstile_engine_returns_total", "b:2"): 0,
        ("turnstile_engine_moves_total",): 1,
        ("turnstile_policy_version", "a:1"): 7,
        ("turnstile_policy_held", "a:1"): 0,
        ("turnstile_policy_held", "b:2"): 1,
        ("turnstile_policy_waiting", "a:1"): 0,
        ("turnstile_policy_waiting", "b:2"): 0,
    }
