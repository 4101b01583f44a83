"""What a replay shows, call by call and in sums."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstile.journal import CallFailed, CallJoined, CallRejected, Record
from turnstile.parsing.formats import detect
from turnstile.reasons import FailReason
from turnstile.reports.replay import ReplayModel, Setting, replay
from turnstile.reports.replay_outcome import ReplayReport, Side, Skipped, outcome
from turnstile.server.local_files import read_model_folder
from turnstile.store import Reader
from turnstile.templates.facts import serve

AT = datetime(2026, 1, 1, tzinfo=UTC)


def played(folder: Path, records: list[Record], template: tuple[str, str] = ("", "")) -> ReplayReport:
    """A replay with a piece of the template replaced."""
    files = read_model_folder(folder)
    own = serve(files, model="m")
    changed = msgspec.structs.replace(files, chat_template=files.chat_template.replace(*template, 1))
    model = ReplayModel(serve(changed, model="m"), detect(files.chat_template))
    setting = Setting(lambda _: model, None, lambda _done, _total: None)
    return outcome(asyncio.run(replay(records, setting)), lambda _head, ids: own.tokenizer.decode(ids))


@pytest.fixture
def records(left: Any, reader: Reader) -> list[Record]:
    return list(reader.records(left.rollout_id))


def test_equal_prompts_are_told_with_how_they_came_about(tools_folder: Path, records: list[Record]) -> None:
    report = played(tools_folder, records)
    assert [(call.call_id, call.then, call.now, call.is_equal, call.ended) for call in report.calls] == [
        ("c0", "root", "root", True, "answered"),
        ("c1", "spliced", "spliced", True, "answered"),
        ("c2", "spliced", "spliced", True, "answered"),
    ]
    tokens = [call.then_tokens for call in report.calls]
    assert [call.now_tokens for call in report.calls] == tokens
    assert report.then == report.now
    assert (report.differing, report.now.calls, report.now.sequences, report.now.roots) == (0, 3, 1, 1)
    assert report.now.prompt_tokens == sum(tokens)


def test_the_first_difference_is_told_with_the_texts_of_both_sides(tools_folder: Path, records: list[Record]) -> None:
    report = played(tools_folder, records, ("<tool_response>", "<tool_result>"))
    assert [call.difference is None for call in report.calls] == [True, True, False]
    found = report.calls[2].difference
    assert found is not None
    assert ("tool_response>" in found.then, "tool_result>" in found.now) == (True, True)
    assert found.then_ids[0] != found.now_ids[0]
    assert report.differing == 1


def test_a_call_that_cannot_be_planned_now_is_told_with_the_reason(tools_folder: Path, records: list[Record]) -> None:
    raising = "{% if messages|length > 1 %}{{ raise_exception('no') }}{% endif %}{%- if tools %}"
    report = played(tools_folder, records, ("{%- if tools %}", raising))
    assert [(call.now, call.is_equal) for call in report.calls] == [
        ("root", True),
        ("refused:render_failed", False),
        ("refused:render_failed", False),
    ]
    assert "no" in report.calls[1].problem
    assert (report.differing, report.now.calls, report.then.calls) == (2, 1, 3)


def test_what_is_not_replayed_is_named_with_the_reason(left: Any, tools_folder: Path, records: list[Record]) -> None:
    more: list[Record] = [
        CallFailed(left.rollout_id, "", AT, FailReason.REFUSED, "no such model"),
        CallJoined(left.rollout_id, AT, "c0", "replayed"),
        CallRejected(left.rollout_id, AT, "rollout_closed"),
    ]
    report = played(tools_folder, [*records, *more])
    assert report.skipped == (
        Skipped("a request", "it was refused before it was planned: no such model"),
        Skipped("a repeat of c0", "it was replayed: nothing was planned for it"),
        Skipped("a request", "it came after the end: rollout_closed"),
    )
    assert isinstance(report.now, Side)
