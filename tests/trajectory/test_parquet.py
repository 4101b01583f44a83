from __future__ import annotations

import json

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from turnstile.trajectory.files import records, write
from turnstile.trajectory.format import decode_line


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
