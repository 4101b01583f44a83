from __future__ import annotations

import json

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from turnstile.errors import CallerError, StoreError
from turnstile.tokens import IdRun
from turnstile.trajectory.files import read, records, write
from turnstile.trajectory.format import decode_line
from turnstile.trajectory.parquet import ROW_GROUP_BYTES, approximate_bytes, read_parquet


@pytest.fixture
def rollout(example):
    return decode_line(json.dumps(example).encode())


def test_a_parquet_file_says_what_it_is_and_has_row_groups_of_64(tmp_path, rollout):
    path = tmp_path / "a.parquet"
    write(path, [msgspec.structs.replace(rollout, rollout_id=f"ro-{number}") for number in range(65)])
    with pq.ParquetFile(path) as file:
        assert file.num_row_groups == 2
        assert file.schema_arrow.metadata == {
            b"turnstile.format": b"turnstile.rollout",
            b"turnstile.format_version": b"1.0",
        }
        assert file.schema_arrow.field("sequences").type.value_type.field("token_ids").type == pa.list_(pa.int32())


def test_a_parquet_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    (found,) = records(path)
    assert found.code == "E102"


def test_a_parquet_record_that_lacks_a_column_is_named(tmp_path, rollout):
    path = tmp_path / "a.parquet"
    write(path, [rollout])
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["status"]), path)
    (found,) = records(path)
    assert (found.code, found.place, found.problem) == (
        "E103",
        "record 1",
        "field of the rollout: object missing required field status",
    )


def test_a_parquet_file_of_another_writer_with_larger_row_groups_is_read(tmp_path, rollout):
    rollouts = [msgspec.structs.replace(rollout, rollout_id=f"ro-{number}") for number in range(130)]
    write(tmp_path / "a.parquet", rollouts)
    pq.write_table(pq.read_table(tmp_path / "a.parquet"), tmp_path / "b.parquet", compression="snappy")
    assert list(records(tmp_path / "b.parquet")) == rollouts


def test_a_column_of_a_newer_version_is_kept(tmp_path, rollout):
    write(tmp_path / "a.parquet", [rollout])
    table = pq.read_table(tmp_path / "a.parquet")
    pq.write_table(table.append_column("shiny", pa.array(["new"])), tmp_path / "b.parquet")
    (found,) = records(tmp_path / "b.parquet")
    assert found.unknown == {"shiny": "new"}


def test_a_row_group_of_large_rollouts_is_bounded_in_bytes(tmp_path, rollout):
    large = msgspec.structs.replace(rollout.sequences[0], token_ids=IdRun(bytes(ROW_GROUP_BYTES // 2)))
    rollouts = [msgspec.structs.replace(rollout, rollout_id=f"ro-{at}", sequences=(large,)) for at in range(3)]
    assert approximate_bytes(rollouts[0]) > ROW_GROUP_BYTES // 2
    path = tmp_path / "a.parquet"
    write(path, [*rollouts[:2], rollout, rollouts[2]])
    with pq.ParquetFile(path) as file:
        assert [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)] == [1, 2, 1]
    assert [each.rollout_id for each in read(path)] == ["ro-0", "ro-1", "ro-0001", "ro-2"]


def test_log_probabilities_are_stored_byte_by_byte_because_no_two_are_alike(tmp_path, rollout):
    write(tmp_path / "a.parquet", [rollout])
    with pq.ParquetFile(tmp_path / "a.parquet") as file:
        group = file.metadata.row_group(0)
        columns = [group.column(at) for at in range(group.num_columns)]
    encodings = {column.path_in_schema: set(column.encodings) for column in columns}
    assert "BYTE_STREAM_SPLIT" in encodings["sequences.list.element.logprobs.list.element"]
    assert "RLE_DICTIONARY" in encodings["sequences.list.element.token_ids.list.element"]
    assert {column.compression for column in columns} == {"ZSTD"}


def test_a_parquet_file_of_another_major_version_is_refused_by_name(tmp_path, rollout):
    write(tmp_path / "a.parquet", [rollout])
    table = pq.read_table(tmp_path / "a.parquet")
    newer = table.replace_schema_metadata(table.schema.metadata | {b"turnstile.format_version": b"2.0"})
    pq.write_table(newer.drop_columns(["sequences"]), tmp_path / "b.parquet")
    with pytest.raises(CallerError, match=r"version 2.0 not readable, needs a turnstile that reads format 2"):
        list(read(tmp_path / "b.parquet"))


@pytest.mark.parametrize("at", ["a page", "the footer"])
def test_damaged_bytes_are_told_as_damage_of_the_file(tmp_path, rollout, at):
    path = tmp_path / "a.parquet"
    write(path, [rollout])
    damaged = bytearray(path.read_bytes())
    start = 4 if at == "a page" else len(damaged) - 400
    damaged[start : start + 300] = bytes(300)
    path.write_bytes(bytes(damaged))
    (found,) = records(path)
    assert (found.code, found.place) == ("E101", "record 1")
    with pytest.raises(CallerError, match="cannot be read as Parquet"):
        list(read(path))


def test_a_parquet_file_that_the_disk_refuses_is_no_damage(tmp_path, rollout):
    path = tmp_path / "a.parquet"
    write(path, [rollout])
    reading = read_parquet(path)
    path.unlink()
    with pytest.raises(StoreError, match="No such file"):
        next(reading)
