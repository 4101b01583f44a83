"""Samples in a file."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pyarrow as pa
import pytest

from turnstile.errors import CallerError
from turnstile.trajectory.converters.conversion import convert
from turnstile.trajectory.converters.samples import write_samples
from turnstile.trajectory.shapes import Rollout


@pytest.mark.parametrize("name", ["samples.jsonl", "samples.jsonl.zst"])
def test_a_line_has_the_sample_and_where_it_came_from(rollouts: list[Rollout], tmp_path: Path, name: str) -> None:
    made = list(convert(rollouts, "openrlhf"))
    assert write_samples(tmp_path / name, made) == 4
    with pa.input_stream(tmp_path / name, compression="detect") as stream:
        lines = [json.loads(line) for line in stream.read().splitlines()]
    assert [line["sample"] for line in lines] == [each.sample for each in made]
    assert lines[1]["origin"] == {
        "group_id": "g-17",
        "rollout_id": "ro-0001",
        "attempt": 1,
        "sequence_ids": ["ro-0001/1"],
        "reward": 1.0,
        "row": 1,
        "rows": 2,
        "row_weight": 0.5,
    }


def test_a_number_in_a_line_is_the_recorded_float32(group, samples_of) -> None:
    group[0]["sequences"][0]["logprobs"][0] = -0.1
    (exact,) = struct.unpack("<f", struct.pack("<f", -0.1))
    assert samples_of("areal")[0]["logprobs"][0][7] == exact


def test_a_refused_conversion_leaves_no_file(rollouts: list[Rollout], tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    with pytest.raises(CallerError):
        write_samples(path, convert(rollouts, "trl"))
    assert list(tmp_path.iterdir()) == []


def test_samples_are_lines_and_no_columns(rollouts: list[Rollout], tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="jsonl"):
        write_samples(tmp_path / "samples.parquet", convert(rollouts, "areal"))
