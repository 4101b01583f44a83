from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from turnstile.errors import CallerError, StoreError
from turnstile.tokens import IdRun
from turnstile.trajectory.files import FileForm, Unreadable, form_of, open_writer, read, records, write
from turnstile.trajectory.format import decode_line

FORMS = [form.value for form in FileForm]


@pytest.fixture
def rollout(example):
    return decode_line(json.dumps(example).encode())


def several(rollout, count):
    return [msgspec.structs.replace(rollout, rollout_id=f"ro-{number}") for number in range(count)]


@pytest.mark.parametrize("ending", FORMS)
def test_what_is_written_is_read_again(tmp_path, rollout, ending):
    rollouts = several(rollout, 70)
    path = tmp_path / f"rollouts{ending}"
    assert write(path, rollouts) == 70
    assert list(read(path)) == rollouts
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", FORMS)
def test_an_empty_file_holds_no_rollout(tmp_path, ending):
    path = tmp_path / f"rollouts{ending}"
    write(path, [])
    assert list(read(path)) == []


@pytest.mark.parametrize("ending", FORMS)
def test_a_file_that_failed_leaves_what_was_there(tmp_path, rollout, ending):
    path = tmp_path / f"rollouts{ending}"
    write(path, [rollout])
    with pytest.raises(KeyboardInterrupt), open_writer(path) as writer:
        writer.write(rollout)
        writer.write(rollout)
        raise KeyboardInterrupt
    assert list(read(path)) == [rollout]
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_jsonl_and_parquet_convert_both_ways_without_loss(tmp_path, example):
    example["sequences"][1]["logprobs"][1] = None
    example["sequences"][0]["token_weights"] = [0.1] * 7
    example["shiny"] = [1]
    example["sequences"][0]["segments"][3]["colour"] = "red"
    example["sequences"][0]["arrays"]["topk_ids"] = {
        "uri": "x.npy",
        "sha256": "0" * 64,
        "dtype": "int32",
        "shape": [7, 4],
        "axis": "sampled",
        "start": 0,
        "end": 7,
    }
    line = tmp_path / "a.jsonl"
    line.write_text(json.dumps(example))
    write(tmp_path / "b.parquet", read(line))
    write(tmp_path / "c.jsonl", read(tmp_path / "b.parquet"))
    assert list(read(line)) == list(read(tmp_path / "b.parquet")) == list(read(tmp_path / "c.jsonl"))
    assert json.loads((tmp_path / "c.jsonl").read_text())["shiny"] == [1]


def test_a_missing_file_and_a_foreign_name_are_refused(tmp_path):
    with pytest.raises(CallerError, match="is no file"):
        list(read(tmp_path / "none.jsonl"))
    with pytest.raises(CallerError, match=r"Use a name that ends in `.jsonl`"):
        form_of(Path("x.csv"))


def test_a_folder_that_is_not_there_is_named(tmp_path, rollout):
    with pytest.raises(StoreError, match="cannot be written"):
        write(tmp_path / "no" / "x.jsonl", [rollout])


def test_a_line_that_breaks_off_is_named_and_the_others_are_read(tmp_path, rollout):
    path = tmp_path / "a.jsonl"
    write(path, several(rollout, 3))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:50] + b"\n" + lines[2][:80])
    found = list(records(path))
    assert [type(record).__name__ for record in found] == ["Rollout", "Unreadable", "Unreadable"]
    assert [(record.code, record.place) for record in found[1:]] == [("E101", "line 2"), ("E101", "line 3")]
    with pytest.raises(CallerError, match=r"line 2 of .*a.jsonl: not a rollout object"):
        list(read(path))


@pytest.mark.parametrize("ending", [".jsonl.zst", ".parquet"])
def test_a_cut_file_is_told_apart_from_a_short_one(tmp_path, rollout, ending):
    path = tmp_path / f"a{ending}"
    write(path, several(rollout, 3))
    path.write_bytes(path.read_bytes()[:-20])
    last = list(records(path))[-1]
    assert isinstance(last, Unreadable)
    assert last.code == "E101"


def peak_bytes(action) -> int:
    """The most memory that Python and Arrow held at once."""
    arrow = pa.total_allocated_bytes()
    tracemalloc.start()
    action()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak + pa.total_allocated_bytes() - arrow


@pytest.mark.parametrize("ending", FORMS)
def test_memory_does_not_grow_with_the_file(tmp_path, rollout, ending):
    long = msgspec.structs.replace(rollout.sequences[0], token_ids=IdRun.of(range(2000)))
    large = msgspec.structs.replace(rollout, sequences=(long,))

    def peaks(count: int) -> tuple[int, int]:
        path = tmp_path / f"{count}{ending}"
        rollouts = (msgspec.structs.replace(large, rollout_id=f"ro-{at}") for at in range(count))
        written = peak_bytes(lambda: write(path, rollouts))
        return written, peak_bytes(lambda: sum(1 for _ in read(path)))

    # Lines are read one by one; a row group holds 64 rollouts.
    few, many = (peaks(128), peaks(384)) if ending == ".parquet" else (peaks(6), peaks(24))
    assert many[0] < 1.5 * few[0]
    assert many[1] < 1.5 * few[1]


def test_a_folder_is_read_in_the_order_of_its_files_names(tmp_path, rollout):
    for at, ending in enumerate([".parquet", ".jsonl", ".jsonl.zst"]):
        write(tmp_path / f"{at}{ending}", [msgspec.structs.replace(rollout, rollout_id=f"ro-{at}")])
    (tmp_path / "notes.md").write_text("not ours")
    (tmp_path / "2.jsonl.zst.media").mkdir()
    assert [found.rollout_id for found in read(tmp_path)] == ["ro-0", "ro-1", "ro-2"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(CallerError, match="No trajectory file in"):
        list(read(tmp_path / "empty"))
