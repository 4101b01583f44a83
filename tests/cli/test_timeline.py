"""A rollout as a timeline."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from turnstile.cli.timeline import show_timeline
from turnstile.generation import Note
from turnstile.history.forest import Forest
from turnstile.journal import CallStarted
from turnstile.reasons import NoteCode
from turnstile.reports.shelf import ModelShelf
from turnstile.store import Blobs, Reader
from turnstile.trajectory.assemble import assemble


@pytest.fixture
def shown(store: Path) -> str:
    return timeline(store, width=140)


def timeline(store: Path, width: int) -> str:
    with Reader.open(store) as reader:
        forest = Forest.of(reader.records("one"))
        served = ModelShelf(reader, Blobs(store)).served(next(iter(forest.heads.values())))
    out = io.StringIO()
    show_timeline(assemble(forest), served.tokenizer.decode, Console(file=out, width=width))
    return out.getvalue()


def test_a_narrow_terminal_shows_less_of_each_text_and_no_more_lines(store: Path, shown: str) -> None:
    narrow = timeline(store, width=80).splitlines()
    assert len(narrow) == len(shown.splitlines())
    assert max(map(len, narrow)) <= 80
    assert any(" … " in line for line in narrow)


def test_each_segment_is_a_line_with_its_origin_its_call_and_its_text(shown: str) -> None:
    assert "one  status completed  reward 1.0" in shown
    rows = [line.split() for line in shown.splitlines() if line[:1].isdigit()]
    assert next(row[1] for row in rows) == "prompt"
    sampled = [row for row in rows if row[1] == "sampled"]
    assert [row[2:5] for row in sampled] == [["c0", "root", "stop"], ["c1", "spliced", "stop"]]
    assert all(float(row[5]) < 0 for row in sampled)
    assert "Hello<|im_end|>" in shown


def test_ids_that_were_put_back_are_a_line_with_the_call_that_drew_them_and_no_probability(store: Path) -> None:
    with Reader.open(store) as reader:
        rollout = assemble(Forest.of(reader.records("one")))
    sequence = rollout.sequences[0]
    segments = tuple(
        msgspec.structs.replace(part, kind="replayed", trainable=False) if part.call == 0 else part
        for part in sequence.segments
    )
    out = io.StringIO()
    rewritten = msgspec.structs.replace(sequence, segments=segments)
    show_timeline(
        msgspec.structs.replace(rollout, sequences=(rewritten,)), lambda ids: "x", Console(file=out, width=140)
    )
    (row,) = [line.split() for line in out.getvalue().splitlines() if " replayed " in line and line[:1].isdigit()]
    assert row[1:] == ["replayed", "c0", "root", "stop", "x"]


def test_the_sum_of_what_was_sampled_is_told(shown: str) -> None:
    (last,) = [line for line in shown.splitlines() if line.startswith("sampled ")]
    sampled, trainable = last.removeprefix("sampled ").split(" = trainable ")
    assert int(sampled) == int(trainable)


def test_a_call_that_went_to_another_engine_is_named_above_with_the_reason(store: Path) -> None:
    with Reader.open(store) as reader:
        records = list(reader.records("one"))
    last = next(at for at, record in reversed(list(enumerate(records))) if isinstance(record, CallStarted))
    moved = Note(NoteCode.ENGINE_MOVED, "a:1 -> b:2: It is [down].")
    records[last] = msgspec.structs.replace(records[last], notes=(moved,))
    out = io.StringIO()
    show_timeline(assemble(Forest.of(records)), lambda _: "", Console(file=out, width=80))
    assert out.getvalue().splitlines()[1] == "call c1 went to another engine: a:1 -> b:2: It is [down]."
