"""What becomes a line of the log, and what a figure."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from turnstile.conversation import Sampling
from turnstile.errors import StoreError
from turnstile.generation import Draw, Note, Root
from turnstile.journal import (
    AnswerUndelivered,
    CallRejected,
    CallStarted,
    RolloutFinished,
    RolloutOpened,
    RolloutStatus,
)
from turnstile.reasons import DiscardReason, EndReason, NoteCode, RootReason
from turnstile.server.call_report import CallReport, Prompted, Took
from turnstile.server.logs import LogForm, logging_to, silent_log
from turnstile.server.metrics import Metrics
from turnstile.server.reporter import Reporter, call_line
from turnstile.store.watching import Commit
from turnstile.tokens import IdRun

AT = datetime(2026, 1, 1, tzinfo=UTC)
REPORT = CallReport(
    rollout_id="r1",
    attempt=1,
    call_id="c2",
    dialect="openai.chat",
    path="/v1/chat/completions",
    status=200,
    outcome="answered",
    repeat="fresh",
    client_gone=False,
    prompted=Prompted("spliced", 120, 100, 7, {"logprob_missing": 1}, "stop", "a:1"),
    took=Took(1.5, added_s=0.0025, queue_s=0.25, plan_s=0.001, engine_s=1.2, first_token_s=0.5, stored_s=0.0005),
)


def moved(note: Note) -> CallStarted:
    return CallStarted(
        rollout_id="r",
        call_id="c1",
        started_at=AT,
        dialect="openai.chat",
        head="h",
        new_head=None,
        engine="vllm",
        engine_version="1",
        parent=None,
        held_length=0,
        added_A=IdRun(),
        added_segments=(),
        prompt_sha256="",
        history=Root(RootReason.FIRST_CALL),
        covered_M=0,
        new_M=(),
        sampling=Sampling(),
        draw=Draw(max_tokens=5),
        body_digest="d",
        notes=(note,),
    )


def test_a_calls_line_has_ids_counts_and_milliseconds_and_nothing_that_was_not_there() -> None:
    assert call_line(REPORT) == {
        "rollout": "r1",
        "attempt": 1,
        "call": "c2",
        "dialect": "openai.chat",
        "path": "/v1/chat/completions",
        "status": 200,
        "outcome": "answered",
        "history": "spliced",
        "prompt_ids": 120,
        "reused_ids": 100,
        "sampled_ids": 7,
        "masked": {"logprob_missing": 1},
        "finish": "stop",
        "engine": "a:1",
        "total_ms": 1500.0,
        "queue_ms": 250.0,
        "plan_ms": 1.0,
        "engine_ms": 1200.0,
        "first_token_ms": 500.0,
        "added_ms": 2.5,
        "stored_ms": 0.5,
    }


def test_what_is_out_of_the_ordinary_about_a_call_stands_in_its_line() -> None:
    prompted = msgspec.structs.replace(REPORT.prompted, continuations=2, moved=True, is_auxiliary=True)
    odd = msgspec.structs.replace(REPORT, client_gone=True, repeat="coalesced", prompted=prompted)
    plain = call_line(REPORT)
    assert {name: value for name, value in call_line(odd).items() if name not in plain} == {
        "repeat": "coalesced",
        "client_gone": True,
        "continuations": 2,
        "moved": True,
        "auxiliary": True,
    }


def test_calls_and_records_become_lines_whose_level_says_whose_fault_it_was(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file, logging_to(file.fileno(), LogForm.JSON, lambda: AT) as log:
        reporter = Reporter(log, Metrics(lambda: 0))
        for status in (200, 404, 503, 0):
            reporter.call(msgspec.structs.replace(REPORT, status=status))
        reporter.appended(RolloutOpened("r1", 2, AT, metadata='{"secret": 1}'), 0.1)
        reporter.appended(CallRejected("r1", AT, "rollout_closed"), 0.1)
        reporter.appended(RolloutFinished("r1", AT, RolloutStatus.FAILED, 0.5, {}, "{}", EndReason.IDLE_TIMEOUT), 0.1)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [
        ("call", "info"),
        ("call", "warning"),
        ("call", "error"),
        ("call", "info"),
        ("rollout_opened", "info"),
        ("rollout_finished", "info"),
    ]
    assert [{name: value for name, value in line.items() if name != "time"} for line in lines[4:]] == [
        {"level": "info", "event": "rollout_opened", "rollout": "r1", "attempt": 2, "by": "operator"},
        {"level": "info", "event": "rollout_finished", "rollout": "r1", "status": "failed", "by": "idle_timeout"},
    ]


def test_what_the_store_fails_is_counted_for_health() -> None:
    reporter = Reporter(silent_log(), Metrics(lambda: 0))
    reporter.call(msgspec.structs.replace(REPORT, status=503, outcome="store_error"))
    reporter.failed(StoreError("the disk is full", "x"))
    assert (reporter.failed_calls.count, reporter.failed_writes.count, reporter.last_failure) == (
        1,
        1,
        "the disk is full",
    )


def test_the_journal_is_counted() -> None:
    metrics = Metrics(lambda: 0)
    reporter = Reporter(silent_log(), metrics)
    reporter.committed(Commit(3, 1000, 0.25, 0.125))
    reporter.failed(StoreError("x", "y"))
    reporter.appended(AnswerUndelivered("r", "c0", AT, DiscardReason.CLIENT_GONE), 0.5)
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if sample.value and not sample.name.endswith(("_bucket", "_created", "_count"))
    }
    assert found == {
        "turnstile_journal_append_seconds_sum": 0.5,
        "turnstile_journal_commit_seconds_sum": 0.25,
        "turnstile_journal_sync_seconds_sum": 0.125,
        "turnstile_journal_group_appends_sum": 3,
        "turnstile_journal_bytes_total": 1000,
        "turnstile_journal_failures_total": 1,
        "turnstile_undelivered_answers_total": 1,
    }


def test_a_call_that_moved_to_another_engine_is_told_with_why(tmp_path: Path) -> None:
    path = tmp_path / "log"
    note = Note(NoteCode.ENGINE_MOVED, "a:1 -> b:2: It is down.")
    with path.open("wb") as file, logging_to(file.fileno(), LogForm.TEXT, lambda: AT) as log:
        Reporter(log, Metrics(lambda: 0)).appended(moved(note), 0.1)
    assert path.read_text() == ('00:00:00 WARNING engine_moved rollout=r call=c1 moved="a:1 -> b:2: It is down."\n')
