"""Parquet files of rollouts: zstd, row groups of 64 rollouts."""

# Arrow's stubs leave most element types open.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from turnstile.errors import CallerError, StoreError
from turnstile.trajectory.columns import SCHEMA, from_batch, to_batch
from turnstile.trajectory.finite import refuse_non_finite
from turnstile.trajectory.format import Fields, check_version, json_text
from turnstile.trajectory.shapes import FORMAT, Rollout

ROW_GROUP_ROLLOUTS: Final = 64
ROW_GROUP_BYTES: Final = 32 << 20
"""A row group holds fewer rollouts if they are this large together, so that memory does not grow with them."""

_PART_BYTES: Final = 400
_LOGPROBS: Final = "sequences.list.element.logprobs.list.element"


class ParquetWriter:
    """Writes rollouts to one Parquet file, a row group whenever 64 are at hand, or less that are large."""

    def __init__(self, path: Path) -> None:
        """Create the file, or empty it."""
        self._waiting: list[Rollout] = []
        self._waiting_bytes = 0
        # No two log-probabilities are alike, but their first bytes are.
        self._file = pq.ParquetWriter(
            path,
            SCHEMA,
            compression="zstd",
            # The stubs know of flags alone; a list names the columns that are given a dictionary.
            use_dictionary=[name for name in _leaf_names() if name != _LOGPROBS],  # pyright: ignore[reportArgumentType]
            column_encoding={_LOGPROBS: "BYTE_STREAM_SPLIT"},
        )

    def write(self, rollout: Rollout) -> None:
        """Add one rollout. Raises: CallerError if a number in it is not finite."""
        refuse_non_finite(rollout)
        size = approximate_bytes(rollout)
        if self._waiting and self._waiting_bytes + size > ROW_GROUP_BYTES:
            self._flush()
        self._waiting.append(rollout)
        self._waiting_bytes += size
        if len(self._waiting) == ROW_GROUP_ROLLOUTS:
            self._flush()

    def finish(self) -> None:
        """Write what is waiting; the file is whole after `close`."""
        self._flush()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _flush(self) -> None:
        if self._waiting:
            self._file.write_batch(to_batch(self._waiting), row_group_size=ROW_GROUP_ROLLOUTS)
            self._waiting = []
            self._waiting_bytes = 0


def _leaf_names() -> list[str]:
    """The columns as Parquet has them, one a leaf."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, SCHEMA):
        pass
    schema = pq.ParquetFile(sink).schema
    return [schema.column(at).path for at in range(len(schema.names))]


def approximate_bytes(rollout: Rollout) -> int:
    """About how much memory the columns of a rollout take: its ids, numbers, texts, calls and segments."""
    numbers = sum(len(sequence.token_ids.packed) + len(sequence.logprobs.packed) for sequence in rollout.sequences)
    parts = len(rollout.calls) + sum(len(sequence.segments) for sequence in rollout.sequences)
    return numbers + _PART_BYTES * parts + len(json_text((rollout.messages, rollout.extra)))


def read_parquet(path: Path) -> Iterator[Fields]:
    """The fields of each rollout, one row group in memory at a time.

    Raises: CallerError if the file is no Parquet file, is cut short, or holds something else than rollouts; StoreError
    if the disk refuses.
    """
    try:
        with pq.ParquetFile(path) as file:
            _check_kind(path, file.schema_arrow)
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(ROW_GROUP_ROLLOUTS, row_groups=[group], use_threads=False):
                    yield from from_batch(batch)
    except (pa.ArrowException, ValueError, OSError) as error:
        # Arrow says of damaged pages that they are an input error, but only the system has numbers for its own.
        if isinstance(error, OSError) and error.errno is not None:
            raise StoreError(f"{path} cannot be read: {error}", "Check the file's permissions and the disk") from error
        raise CallerError(
            f"{path} cannot be read as Parquet: {error}", "Write the file anew; it is damaged or cut short", code="E101"
        ) from error


def _check_kind(path: Path, schema: pa.Schema) -> None:
    said = {key.decode(errors="replace"): value for key, value in (schema.metadata or {}).items()}
    found = said.get("turnstile.format", b"").decode(errors="replace")
    if found != FORMAT:
        raise CallerError(
            f"{path} is a Parquet file of something else than rollouts",
            "Give a file that `turnstile export` wrote",
            code="E102",
        )
    check_version(said.get("turnstile.format_version", b"").decode(errors="replace"))
