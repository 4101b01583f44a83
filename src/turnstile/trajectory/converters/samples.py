"""Samples of one trainer in a file: one JSON object a line, `{"origin": ..., "sample": ...}`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
import orjson
import pyarrow as pa

from turnstile.errors import CallerError
from turnstile.trajectory.converters.conversion import Converted
from turnstile.trajectory.files import FileForm
from turnstile.trajectory.whole import appears_whole


def write_samples(path: str | os.PathLike[str], samples: Iterable[Converted]) -> int:
    """Write samples to `.jsonl` or `.jsonl.zst`; the file appears when it is whole. Answers how many there were.

    Raises: CallerError for another name, and what the conversion raises; StoreError if the disk refuses.
    """
    target = Path(path)
    if not target.name.endswith((FileForm.JSONL, FileForm.JSONL_ZSTD)):
        raise CallerError(
            f"{target} is not named as a file of samples", "Use a name that ends in `.jsonl` or `.jsonl.zst`"
        )
    written = 0
    with appears_whole(target) as partial:
        # The partial file's name asks for no compression, which is what `detect` then finds.
        compression = "zstd" if target.name.endswith(FileForm.JSONL_ZSTD) else "detect"
        with pa.output_stream(partial, compression=compression) as stream:
            for converted in samples:
                stream.write(line_of(converted))
                written += 1
    return written


def line_of(converted: Converted) -> bytes:
    """One sample as a line. A float stands with all the digits that its float32 has as a double."""
    fields = {"origin": msgspec.structs.asdict(converted.origin), "sample": converted.sample}
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
