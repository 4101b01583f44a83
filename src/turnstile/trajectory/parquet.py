"""Parquet files of rollouts: zstd, row groups of 64 rollouts."""

# Arrow's stubs leave most element types open.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from turnstile.errors import CallerError
from turnstile.trajectory.columns import SCHEMA, from_batch, to_batch
from turnstile.trajectory.format import Fields, refuse_non_finite
from turnstile.trajectory.shapes import FORMAT, Rollout

ROW_GROUP_ROLLOUTS: Final = 64


class ParquetWriter:
    """Writes rollouts to one Parquet file, a row group whenever 64 are at hand."""

    def __init__(self, path: Path) -> None:
        """Create the file, or empty it."""
        self._waiting: list[Rollout] = []
        self._file = pq.ParquetWriter(path, SCHEMA, compression="zstd")

    def write(self, rollout: Rollout) -> None:
        """Add one rollout. Raises: CallerError if a number in it is not finite."""
        refuse_non_finite(rollout)
        self._waiting.append(rollout)
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


def read_parquet(path: Path) -> Iterator[Fields]:
    """The fields of each rollout, one row group in memory at a time.

    Raises: CallerError if the file is no Parquet file, is cut short, or holds something else than rollouts.
    """
    try:
        with pq.ParquetFile(path) as file:
            _check_kind(path, file.schema_arrow)
            for batch in file.iter_batches(batch_size=ROW_GROUP_ROLLOUTS):
                yield from from_batch(batch)
    except (pa.ArrowException, ValueError) as error:
        raise CallerError(
            f"{path} cannot be read as Parquet: {error}", "Write the file anew; it is damaged or cut short", code="E101"
        ) from error


def _check_kind(path: Path, schema: pa.Schema) -> None:
    found = (schema.metadata or {}).get(b"turnstile.format", b"").decode(errors="replace")
    if found != FORMAT:
        raise CallerError(
            f"{path} is a Parquet file of something else than rollouts",
            "Give a file that `turnstile export` wrote",
            code="E102",
        )
