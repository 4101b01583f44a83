"""A rollout as a timeline."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from turnstile.cli.timeline import show_timeline
from turnstile.history.forest import Forest
from turnstile.reports.shelf import ModelShelf
from turnstile.store import Blobs, Reader
from turnstile.trajectory.assemble import assemble


@pytest.fixture
def shown(store: Path) -> str:
    with Reader.open(store) as reader:
        forest = Forest.of(reader.records("one"))
        served = ModelShelf(reader, Blobs(store)).served(next(iter(forest.heads.values())))
    out = io.StringIO()
    show_timeline(assemble(forest), served.tokenizer.decode, Console(file=out, width=140))
    return out.getvalue()


def test_each_segment_is_a_line_with_its_origin_its_call_and_its_text(shown: str) -> None:
    assert "one  status completed  reward 1.0" in shown
    rows = [line.split() for line in shown.splitlines() if line[:1].isdigit()]
    assert next(row[1] for row in rows) == "prompt"
    sampled = [row for row in rows if row[1] == "sampled"]
    assert [row[2:5] for row in sampled] == [["c0", "root", "stop"], ["c1", "spliced", "stop"]]
    assert all(float(row[5]) < 0 for row in sampled)
    assert "Hello<|im_end|>" in shown


def test_the_sum_of_what_was_sampled_is_told(shown: str) -> None:
    (last,) = [line for line in shown.splitlines() if line.startswith("sampled ")]
    sampled, trainable = last.removeprefix("sampled ").split(" = trainable ")
    assert int(sampled) == int(trainable)
