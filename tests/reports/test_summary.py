"""A rollout in a few figures."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from turnstile.generation import Forked, NodeRef
from turnstile.history.forest import Forest
from turnstile.journal import CallFailed, CallStarted, RolloutOpened, RolloutStatus
from turnstile.reasons import EndReason, FailReason, ForkReason
from turnstile.reports.drift import Figures, PromptFigures
from turnstile.reports.summary import Summary, summarise
from turnstile.store import Reader
from turnstile.tokens import IdRun, SegmentKind, tile

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_calls_tokens_and_how_prompts_came_about_are_counted(left: Any, reader: Reader) -> None:
    forest = Forest.of(reader.records(left.rollout_id))
    live = Figures(calls=2, calls_compared=2, calls_differing=1, prompt_sampled=9, prompt_wrong=4, sequences=1)
    found = summarise(forest, live)
    assert forest.opened is not None
    assert forest.finished is not None
    prompts = [node.length - len(node.choice.ids_S) for node in forest.nodes]
    (started, *_) = (state.started for state in forest.calls.values())
    assert found == Summary(
        rollout_id=left.rollout_id, attempt=1, status=RolloutStatus.COMPLETED, group_id="g", task_id="t",
        opened_at=forest.opened.opened_at, finished_at=forest.finished.finished_at, reward=1.0, calls=3,
        failed_calls={},
        prompt_tokens=sum(prompts), sampled_tokens=sum(map(len, left.answers)), replayed_tokens=0, reencoded_tokens=0,
        history={"root": 1, "spliced": 2},
        notes={}, quirks={}, kinds={"turn": 3}, engines={started.engine_name: 3}, retries=0,
        drift=PromptFigures(calls=3, calls_compared=2, calls_differing=1, prompt_sampled=9, prompt_wrong=4),
        end_reason=EndReason.RUNNER,
    )  # fmt: skip


def test_what_a_fork_put_back_and_what_it_encoded_again_are_counted_apart(left: Any, reader: Reader) -> None:
    records = list(reader.records(left.rollout_id))
    last = next(record for record in reversed(records) if isinstance(record, CallStarted))
    rewritten = msgspec.structs.replace(
        last,
        call_id="rewritten",
        parent=None,
        held_length=0,
        history=Forked(ForkReason.HISTORY_REWRITTEN),
        added_A=IdRun.of(range(9)),
        added_segments=tile([(4, SegmentKind.PROMPT), (3, SegmentKind.REPLAYED), (2, SegmentKind.SCAFFOLD)]),
        replayed=(NodeRef(last.call_id),),
    )
    found = summarise(Forest.of([*records[:-1], rewritten]), Figures())
    assert (found.replayed_tokens, found.reencoded_tokens) == (3, 6)


def test_failures_before_and_after_planning_are_counted_by_reason() -> None:
    opened = RolloutOpened("r", 1, AT)
    refused = CallFailed("r", "", AT, FailReason.REFUSED, "bad")
    found = summarise(Forest.of([opened, refused, refused]), Figures())
    assert (found.calls, found.failed_calls, found.status) == (0, {"refused": 2}, RolloutStatus.RUNNING)


def test_nothing_cannot_be_summed_up() -> None:
    with pytest.raises(ValueError, match="no rollout"):
        summarise(Forest(), Figures())
