"""What Prometheus is told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from turnstile.reports.drift import Difference, DriftKind, Run, RunKind
from turnstile.reports.drift_cause import Held
from turnstile.reports.drift_watch import Seen
from turnstile.reports.text_client import Conversation
from turnstile.server.call_report import CallReport, Prompted, Took
from turnstile.server.metrics import Metrics
from turnstile.tokens import IdRun
from turnstile.trajectory.shapes import TokenCounts


def figures(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
        if "bucket" not in sample.name and "created" not in sample.name
    }


MASKED = {"logprob_missing": 1}


def report(**fields: Any) -> CallReport:
    """A call that was answered after 0.25 s; `fields` are a report's or those of its two parts."""
    parts = {
        "took": Took(0.25),
        "prompted": Prompted(),
        **{name: fields.pop(name) for name in ("took", "prompted") if name in fields},
    }
    plain = CallReport(
        "r", 1, "c1", "openai.chat", "/v1/chat/completions", 200, "answered", "fresh", client_gone=False, **parts
    )
    return msgspec.structs.replace(plain, **fields)


def test_calls_are_counted_by_dialect_history_and_outcome_and_tokens_by_side() -> None:
    metrics = Metrics(lambda: 3)
    spliced = Prompted(
        "spliced", prompt_ids=7, reused_ids=4, sampled_ids=2, masked={"logprob_missing": 1}, continuations=1
    )
    for each in (
        report(prompted=spliced),
        report(prompted=spliced),
        report(prompted=spliced, repeat="replayed"),
        report(prompted=Prompted("forked:message_edited"), status=503, outcome="engine_unreachable"),
        report(call_id="", status=400, outcome="invalid_request"),
        report(prompted=Prompted("root", prompt_ids=3), status=0, outcome="client_gone", client_gone=True),
    ):
        metrics.answered(each)
    assert {name: value for name, value in figures(metrics).items() if value and "seconds" not in name[0]} == {
        ("turnstile_calls_total", ("openai.chat", "spliced", "answered")): 3,
        ("turnstile_calls_total", ("openai.chat", "forked:message_edited", "engine_unreachable")): 1,
        ("turnstile_calls_total", ("openai.chat", "none", "invalid_request")): 1,
        ("turnstile_calls_total", ("openai.chat", "root", "client_gone")): 1,
        ("turnstile_answers_total", ("200",)): 3,
        ("turnstile_answers_total", ("400",)): 1,
        ("turnstile_answers_total", ("503",)): 1,
        ("turnstile_prompts_total", ("spliced",)): 2,
        ("turnstile_prompts_total", ("forked:message_edited",)): 1,
        ("turnstile_prompts_total", ("root",)): 1,
        ("turnstile_tokens_total", ("prompt",)): 17,
        ("turnstile_tokens_total", ("held",)): 8,
        ("turnstile_tokens_total", ("added",)): 9,
        ("turnstile_tokens_total", ("completion",)): 4,
        ("turnstile_call_masked_tokens_total", ("logprob_missing",)): 2,
        ("turnstile_repeats_total", ("replayed",)): 1,
        ("turnstile_continuations_total", ()): 2,
        ("turnstile_clients_gone_total", ()): 1,
        ("turnstile_open_rollouts", ()): 3,
    }


def test_times_are_counted_where_there_were_any_and_an_engines_by_its_name() -> None:
    metrics = Metrics(lambda: 0)
    there = Took(
        3.0, added_s=0.25, queue_s=0.5, hold_s=0.125, plan_s=1.0, engine_s=2.0, first_token_s=1.5, stored_s=0.75
    )
    metrics.answered(report(took=there, prompted=Prompted("root", engine="a:1")))
    metrics.answered(report(took=Took(1.0)))
    found = figures(metrics)
    assert {name: value for name, value in found.items() if name[0].endswith("seconds_sum")} == {
        ("turnstile_call_seconds_sum", ()): 4.0,
        ("turnstile_added_seconds_sum", ()): 0.25,
        ("turnstile_stage_seconds_sum", ("queue",)): 0.5,
        ("turnstile_stage_seconds_sum", ("hold",)): 0.125,
        ("turnstile_stage_seconds_sum", ("plan",)): 1.0,
        ("turnstile_stage_seconds_sum", ("store",)): 0.75,
        ("turnstile_engine_seconds_sum", ("a:1",)): 2.0,
        ("turnstile_engine_first_token_seconds_sum", ("a:1",)): 1.5,
    }
    counts = {name[0]: value for name, value in found.items() if name[0].endswith("seconds_count") and not name[1]}
    assert counts == {"turnstile_call_seconds_count": 2, "turnstile_added_seconds_count": 1}


def test_tokens_of_finished_rollouts_are_counted_by_their_fate() -> None:
    metrics = Metrics(lambda: 0)
    metrics.finished(TokenCounts(sampled=9, trainable=4, masked={"auxiliary": 3}, discarded={"client_gone": 2}))
    assert {name: value for name, value in figures(metrics).items() if "finished" in name[0]} == {
        ("turnstile_finished_tokens_total", ("trainable", "")): 4,
        ("turnstile_finished_tokens_total", ("masked", "auxiliary")): 3,
        ("turnstile_finished_tokens_total", ("discarded", "client_gone")): 2,
    }


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
