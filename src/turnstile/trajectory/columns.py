"""The Parquet columns of docs/reference/trajectory.md, and rollouts as batches of them.

Ids and float32 runs go between Arrow's buffers and ours without becoming Python numbers. What a newer version put
beside the fields known here is kept in `unknown_json`, as pairs of a path and the fields found there.
"""

# Arrow's stubs leave most element types open; what a column holds is only known from the schema.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any, Final, TypeAlias, cast

import msgspec
import orjson
import pyarrow as pa

from turnstile.tokens import IdRun, LogprobRun, join
from turnstile.trajectory.arrow_lists import Column, null_indices, numbers, values_of
from turnstile.trajectory.format import Fields, json_text, parts_with_unknown, restore_unknown
from turnstile.trajectory.packed import float_array, id_array
from turnstile.trajectory.shapes import FORMAT, FORMAT_VERSION, Float32Run, FormatPart, Rollout, Sequence

Columns: TypeAlias = "dict[str, pa.DataType]"

_TEXT = pa.string()
_TEXTS = pa.list_(_TEXT)
_INT = pa.int64()
_TIME = pa.timestamp("us", "UTC")
_FLOATS = pa.list_(pa.float32())


def _struct(columns: Columns) -> pa.DataType:
    return pa.struct([pa.field(name, kind) for name, kind in columns.items()])


_USAGE: Columns = {"prompt_tokens": _INT, "completion_tokens": _INT, "cached_tokens": _INT}
_CALL: Columns = {
    **dict.fromkeys(("call_id", "engine_request_id"), _TEXT),
    "parent": _INT,
    **dict.fromkeys(("history", "history_reason"), _TEXT),
    "fork_at": _INT,
    **dict.fromkeys(("kind", "kind_reason", "agent_name", "dialect"), _TEXT),
    **dict.fromkeys(("choice_index", "head", "sampling", "sequence"), _INT),
    **dict.fromkeys(("started_at", "finished_at"), _TIME),
    **dict.fromkeys(("finish", "engine_finish_reason"), _TEXT),
    "usage": _struct(_USAGE),
    **dict.fromkeys(("prompt_sha256", "completion_sha256", "logprobs_mode"), _TEXT),
    "logprobs_temperature": pa.float32(),
    "complete": pa.bool_(),
    "incomplete_reasons": _TEXTS,
}
_SEGMENT: Columns = {
    **dict.fromkeys(("start", "end"), _INT),
    "kind": _TEXT,
    "call": _INT,
    "trainable": pa.bool_(),
    "mask_reason": _TEXT,
    "weight": pa.float32(),
    **dict.fromkeys(("policy_version_min", "policy_version_max"), _INT),
}
_MEDIA: Columns = {
    **dict.fromkeys(("sha256", "mime", "kind"), _TEXT),
    **dict.fromkeys(("offset", "length", "num_tokens", "placeholder_id", "width", "height"), _INT),
}
_ARRAY: Columns = {
    **dict.fromkeys(("name", "uri", "sha256", "dtype"), _TEXT),
    "shape": pa.list_(_INT),
    "axis": _TEXT,
    **dict.fromkeys(("start", "end"), _INT),
}
_SEQUENCE: Columns = {
    "sequence_id": _TEXT,
    **dict.fromkeys(("head", "leaf_call"), _INT),
    "agent_name": _TEXT,
    "token_ids": pa.list_(pa.int32()),
    "prompt_length": _INT,
    "segments": pa.list_(_struct(_SEGMENT)),
    **dict.fromkeys(("logprobs", "token_weights", "advantages"), _FLOATS),
    "reward": pa.float64(),
    "complete": pa.bool_(),
    "incomplete_reasons": _TEXTS,
    "media": pa.list_(_struct(_MEDIA)),
    "arrays": pa.list_(_struct(_ARRAY)),
    "messages": pa.list_(_INT),
}
_ROLLOUT: Columns = {
    **dict.fromkeys(("format", "format_version", "rollout_id"), _TEXT),
    "attempt": pa.int32(),
    **dict.fromkeys(("group_id", "task_id"), _TEXT),
    "sample_index": _INT,
    **dict.fromkeys(("parent_rollout_id", "parent_call_id", "agent_name"), _TEXT),
    **dict.fromkeys(("created_at", "finished_at"), _TIME),
    **dict.fromkeys(("status", "stop_reason"), _TEXT),
    "trainable": pa.bool_(),
    "mask_reasons": _TEXTS,
    "reward": pa.float64(),
    "rewards": pa.map_(_TEXT, pa.float64()),
}
_JSON = ("error", "metrics", "heads", "samplings", "messages", "tools", "token_counts", "extra")

SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, kind) for name, kind in _ROLLOUT.items()),
        pa.field("calls", pa.list_(_struct(_CALL))),
        pa.field("sequences", pa.list_(_struct(_SEQUENCE))),
        *(pa.field(f"{name}_json", _TEXT) for name in _JSON),
        pa.field("unknown_json", _TEXT),
    ],
    metadata={"turnstile.format": FORMAT, "turnstile.format_version": FORMAT_VERSION},
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_batch(rollouts: list[Rollout]) -> pa.RecordBatch:
    """Rollouts as one batch of `SCHEMA`."""
    calls = [call for rollout in rollouts for call in rollout.calls]
    sequences = [sequence for rollout in rollouts for sequence in rollout.sequences]
    columns = [
        *(_column([getattr(rollout, name) for rollout in rollouts], kind) for name, kind in _ROLLOUT.items()),
        _lists([len(rollout.calls) for rollout in rollouts], _column(calls, _struct(_CALL))),
        _lists([len(rollout.sequences) for rollout in rollouts], _sequences_column(sequences)),
        *(_column([_text_of(getattr(rollout, name)) for rollout in rollouts], _TEXT) for name in _JSON),
        _column([_unknown_text(rollout) for rollout in rollouts], _TEXT),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def from_batch(batch: pa.RecordBatch) -> Iterator[Fields]:
    """The fields of each rollout of a batch, as `format.from_fields` takes them.

    Raises: ValueError if a JSON column holds no JSON, or a column is not what its name says.
    """
    names = batch.schema.names
    columns = [_values(column, name) for name, column in zip(names, batch.columns, strict=True)]
    for row in zip(*columns, strict=True):
        fields: Fields = dict(zip(names, row, strict=True))
        for name in [name for name in names if name.endswith("_json")]:
            text = fields.pop(name)
            fields[name.removesuffix("_json")] = None if text is None else orjson.loads(cast(str, text))
        # The key is Arrow's own column here, never a field of the format.
        restore_unknown(fields, fields.pop("unknown", None))
        yield fields


def _text_of(value: object) -> str | None:
    return None if value is None else json_text(value)


def _unknown_text(rollout: Rollout) -> str | None:
    found = [(path, part.unknown) for path, part in parts_with_unknown(rollout)]
    return json_text(found) if found else None


def _column(values: Iterable[object], kind: pa.DataType) -> Column:
    return cast(Column, pa.array([_row(value) for value in values], kind))


def _row(value: object) -> object:
    match value:
        case FormatPart():
            return msgspec.to_builtins(value, builtin_types=(datetime,))
        case dict():
            return list(cast(Fields, value).items())
        case _:
            return value


def _lists(lengths: list[int], values: Column, absent: list[bool] | None = None) -> Column:
    ends = pa.array([0, *accumulate(lengths)], pa.int32())
    mask = pa.array(absent) if absent and any(absent) else None
    return cast(Column, pa.ListArray.from_arrays(ends, values, mask=mask))


def _sequences_column(sequences: list[Sequence]) -> Column:
    children = [_sequence_child(sequences, name, kind) for name, kind in _SEQUENCE.items()]
    return cast(Column, pa.StructArray.from_arrays(children, fields=list(cast(pa.StructType, _struct(_SEQUENCE)))))


def _sequence_child(sequences: list[Sequence], name: str, kind: pa.DataType) -> Column:
    match name:
        case "token_ids":
            ids = id_array(join(sequence.token_ids for sequence in sequences))
            return _lists([len(sequence.token_ids) for sequence in sequences], ids)
        case "logprobs" | "token_weights" | "advantages":
            return _float_lists([getattr(sequence, name) for sequence in sequences])
        case "segments" | "media":
            parts: list[tuple[FormatPart, ...]] = [getattr(sequence, name) for sequence in sequences]
            inner = _column([part for several in parts for part in several], cast("pa.ListType[Any]", kind).value_type)
            return _lists([len(several) for several in parts], inner)
        case "arrays":
            return cast(Column, pa.array([_named(sequence) for sequence in sequences], kind))
        case _:
            return _column([getattr(sequence, name) for sequence in sequences], kind)


def _float_lists(runs: list[LogprobRun | Float32Run | None]) -> Column:
    pieces = [
        float_array(run.packed, run.unknown if isinstance(run, LogprobRun) else ()) for run in runs if run is not None
    ]
    values = pa.concat_arrays([float_array(b""), *pieces])
    return _lists([0 if run is None else len(run) for run in runs], values, [run is None for run in runs])


def _named(sequence: Sequence) -> list[Fields]:
    return [{"name": name, **msgspec.to_builtins(entry)} for name, entry in sequence.arrays.items()]


def _values(column: Column, name: str) -> list[object]:
    """The values of a column as `format.from_fields` takes them: structs as fields, runs packed, times aware."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _times(column)
    if pa.types.is_struct(kind):
        return _structs(column)
    if pa.types.is_map(kind):
        return [None if items is None else dict(items) for items in column.to_pylist()]
    if pa.types.is_list(kind):
        return _list_values(cast("pa.ListArray[Any]", column), name)
    return values_of(column)


def _times(column: Column) -> list[object]:
    # Arrow's own conversion looks the zone up in a database that a small machine may not have.
    micros = cast("list[int | None]", values_of(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())))
    return [None if micro is None else _EPOCH + timedelta(microseconds=micro) for micro in micros]


def _structs(column: Column) -> list[object]:
    names = [field.name for field in cast(pa.StructType, column.type)]
    children = [_values(child, name) for name, child in zip(names, cast(pa.StructArray, column).flatten(), strict=True)]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*children, strict=True)]
    found: list[object] = list(rows)
    for at in null_indices(column):
        found[at] = None
    return found


def _list_values(column: pa.ListArray[Any], name: str) -> list[object]:
    spans = list(pairwise(numbers(column.offsets)))
    inner = column.values
    match name:
        case "token_ids":
            found = _id_runs(inner, spans)
        case "logprobs":
            found = _logprob_runs(inner, spans)
        case "token_weights" | "advantages":
            data = _data(inner, pa.float32())
            found = [Float32Run(data[4 * start : 4 * end].tobytes()) for start, end in spans]
        case _:
            first = spans[0][0] if spans else 0
            values = _values(inner.slice(first, spans[-1][1] - first) if spans else inner, "")
            found = [values[start - first : end - first] for start, end in spans]
            if name == "arrays":
                found = [{cast(str, entry.pop("name")): entry for entry in cast(list[Fields], some)} for some in found]
    values: list[object] = list(found)
    for at in null_indices(column):
        values[at] = None
    return values


def _data(values: Column, kind: pa.DataType) -> memoryview:
    """The bytes of a column of 4-byte numbers. Raises: ValueError if its values are no such numbers."""
    whole = values.cast(kind)
    buffer = whole.buffers()[1]
    return memoryview(buffer if buffer is not None else b"")[4 * whole.offset : 4 * (whole.offset + len(whole))]


def _id_runs(values: Column, spans: list[tuple[int, int]]) -> list[IdRun]:
    if values.null_count:
        raise ValueError("token_ids: expected int, got null")
    data = _data(values, pa.int32())
    return [IdRun(data[4 * start : 4 * end].tobytes()) for start, end in spans]


def _logprob_runs(values: Column, spans: list[tuple[int, int]]) -> list[LogprobRun]:
    unknown = null_indices(values)
    # What lies under a null is anything; a run's unknown entries are zero.
    data = _data(values.fill_null(0.0) if unknown else values, pa.float32())
    runs: list[LogprobRun] = []
    for start, end in spans:
        inside = unknown[bisect_left(unknown, start) : bisect_left(unknown, end)]
        runs.append(LogprobRun(data[4 * start : 4 * end].tobytes(), tuple(at - start for at in inside)))
    return runs
