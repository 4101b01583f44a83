"""The figures of a store's upkeep."""

from __future__ import annotations

from typing import cast

from prometheus_client import CollectorRegistry, generate_latest

from turnstile.exchange.rollouts import Rollouts
from turnstile.server.upkeep import Upkeep
from turnstile.server.upkeep_metrics import UpkeepMetrics
from turnstile.store import Journal, Reader
from turnstile.store.pruning import Keep


def test_each_reason_has_a_figure_from_the_start() -> None:
    upkeep = Upkeep(cast("Journal", None), cast("Reader", None), cast("Rollouts", None), Keep())
    upkeep.closed_idle, upkeep.trouble = 3, "The disk refuses"
    upkeep.deleted["age"] += 2
    registry = CollectorRegistry()
    registry.register(UpkeepMetrics(upkeep))
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    assert lines == [
        "turnstile_idle_closed_rollouts_total 3.0",
        'turnstile_deleted_attempts_total{reason="asked"} 0.0',
        'turnstile_deleted_attempts_total{reason="age"} 2.0',
        'turnstile_deleted_attempts_total{reason="size"} 0.0',
        "turnstile_exported_attempts_total 0.0",
        "turnstile_retention_failing 1.0",
    ]
    assert upkeep.troubles() == ("Old rollouts are not deleted: The disk refuses",)
