from __future__ import annotations

import json

import msgspec
import pyarrow as pa
import pytest

from turnstile.tokens import LogprobRun
from turnstile.trajectory.columns import SCHEMA, from_batch, to_batch
from turnstile.trajectory.format import decode_line, from_fields
from turnstile.trajectory.shapes import Float32Run


@pytest.fixture
def rollout(example):
    return decode_line(json.dumps(example).encode())


def test_a_batch_gives_back_its_rollouts(rollout):
    bare = msgspec.structs.replace(rollout, sequences=(), calls=(), rewards={})
    batch = to_batch([rollout, bare, rollout])
    assert batch.schema.equals(SCHEMA, check_metadata=True)
    assert [from_fields(fields) for fields in from_batch(batch)] == [rollout, bare, rollout]


def test_a_slice_of_a_batch_gives_the_rollouts_in_it(rollout):
    others = [msgspec.structs.replace(rollout, rollout_id=f"ro-{number}") for number in range(3)]
    assert [from_fields(fields) for fields in from_batch(to_batch(others).slice(1, 1))] == others[1:2]


def test_absent_and_empty_runs_stay_apart(rollout):
    weighted = msgspec.structs.replace(rollout.sequences[0], token_weights=Float32Run.of([0.5] * 7))
    empty = msgspec.structs.replace(rollout.sequences[0], token_weights=Float32Run())
    rollout = msgspec.structs.replace(rollout, sequences=(weighted, rollout.sequences[1], empty))
    (fields,) = from_batch(to_batch([rollout]))
    assert from_fields(fields) == rollout


def test_what_lies_under_a_null_number_never_counts(rollout):
    sequence = msgspec.structs.replace(rollout.sequences[0], logprobs=LogprobRun.of([-1.0, None, -2.0]))
    batch = to_batch([msgspec.structs.replace(rollout, sequences=(sequence,))])
    values = batch.column("sequences").flatten().field("logprobs").values
    dirty = pa.Array.from_buffers(
        pa.float32(), 3, [values.buffers()[0], pa.py_buffer(pa.array([-1.0, 7.0, -2.0], pa.float32()).buffers()[1])]
    )
    assert dirty.to_pylist() == [-1.0, None, -2.0]
    lists = pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), dirty)
    sequences = batch.column("sequences").flatten()
    names = [field.name for field in sequences.type]
    children = [lists if name == "logprobs" else sequences.field(name) for name in names]
    replaced = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pa.StructArray.from_arrays(children, names))
    columns = [replaced if name == "sequences" else batch.column(name) for name in SCHEMA.names]
    (fields,) = from_batch(pa.RecordBatch.from_arrays(columns, names=SCHEMA.names))
    assert from_fields(fields).sequences[0].logprobs == LogprobRun.of([-1.0, None, -2.0])
