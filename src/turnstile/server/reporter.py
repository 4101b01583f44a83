"""Who is told of calls and of records: they become lines of the log and figures, and nothing waits for either."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final

from turnstile.errors import StoreError
from turnstile.exchange.repeats import Repeat
from turnstile.journal import AnswerUndelivered, CallStarted, Record, RolloutFinished, RolloutOpened
from turnstile.reasons import NoteCode
from turnstile.server.call_report import CallReport
from turnstile.server.journal_metrics import JournalMetrics
from turnstile.server.lately import Lately
from turnstile.server.logs import Level, Log, LogValue
from turnstile.server.metrics import Metrics
from turnstile.store.watching import Commit


def call_line(report: CallReport) -> dict[str, LogValue]:
    """The fields of a call's line, in order; times in milliseconds. What was not there is left out."""
    call, took = report.prompted, report.took
    fields: dict[str, LogValue] = {
        "rollout": report.rollout_id,
        "attempt": report.attempt,
        "call": report.call_id,
        "dialect": report.dialect,
        "path": report.path,
        "status": report.status,
        "outcome": report.outcome,
        "history": call.history,
        "prompt_ids": call.prompt_ids,
        "reused_ids": call.reused_ids,
        "sampled_ids": call.sampled_ids,
        "masked": call.masked,
        "finish": call.finish,
        "engine": call.engine,
    }
    times = {
        "total_ms": took.total_s,
        "queue_ms": took.queue_s,
        "hold_ms": took.hold_s,
        "plan_ms": took.plan_s,
        "engine_ms": took.engine_s,
        "first_token_ms": took.first_token_s,
        "added_ms": took.added_s,
        "stored_ms": took.stored_s,
    }
    fields |= {name: round(1e3 * spent_s, 3) for name, spent_s in times.items() if spent_s is not None}
    if report.repeat != Repeat.FRESH:
        fields["repeat"] = report.repeat
    if report.client_gone:
        fields["client_gone"] = True
    if call.continuations:
        fields["continuations"] = call.continuations
    if call.moved:
        fields["moved"] = True
    if call.is_auxiliary:
        fields["auxiliary"] = True
    return fields


@final
class Reporter:
    """Tells the log and the figures. It watches the journal, and is told of each request of an agent."""

    def __init__(self, log: Log, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        """Tell of what comes.

        Args:
            log: gets lines.
            metrics: gets figures; those of the journal are added to its registry.
            clock: seconds, never going back.
        """
        self._log = log
        self._metrics = metrics
        self._journal = JournalMetrics(metrics.registry)
        self.failed_writes = Lately(clock)
        self.failed_calls = Lately(clock)
        """Calls that the store failed."""
        self.last_failure = ""
        """What was wrong with the last record that could not be written."""

    def call(self, report: CallReport) -> None:
        """A request of an agent is over."""
        self._metrics.answered(report)
        if report.outcome == StoreError.code:
            self.failed_calls.note()
        if self._log.is_on:
            level = Level.INFO if report.status < 400 else Level.WARNING if report.status < 500 else Level.ERROR
            self._log.tell("call", call_line(report), level)

    def committed(self, commit: Commit) -> None:
        """A transaction is durable."""
        self._journal.committed(commit)

    def failed(self, error: StoreError) -> None:
        """A transaction could not be written."""
        self.failed_writes.note()
        self.last_failure = error.problem
        self._journal.failed()

    def appended(self, record: Record, waited_s: float) -> None:
        """A record is durable."""
        self._journal.appended(waited_s)
        match record:
            case RolloutOpened():
                self._log.tell(
                    "rollout_opened",
                    {"rollout": record.rollout_id, "attempt": record.attempt, "by": record.opened_by},
                )
            case RolloutFinished():
                self._log.tell(
                    "rollout_finished",
                    {"rollout": record.rollout_id, "status": record.status.value, "by": record.reason.value},
                )
            case AnswerUndelivered():
                self._journal.undelivered()
            case CallStarted():
                self._started(record)
            case _:
                # The rest is told by the request that it belongs to.
                pass

    def _started(self, record: CallStarted) -> None:
        moved = next((note.detail for note in record.notes if note.code is NoteCode.ENGINE_MOVED), "")
        if moved:
            fields: dict[str, LogValue] = {"rollout": record.rollout_id, "call": record.call_id, "moved": moved}
            self._log.tell("engine_moved", fields, Level.WARNING)
