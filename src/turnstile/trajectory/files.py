"""Trajectory files: written whole or not at all, read a rollout at a time."""

from __future__ import annotations

import enum
import io
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Protocol, TypeVar, assert_never, cast

import msgspec
import pyarrow as pa

from turnstile.errors import CallerError, StoreError
from turnstile.trajectory.format import Rollout, decode_line, encode_line, from_fields
from turnstile.trajectory.parquet import ParquetWriter, read_parquet
from turnstile.trajectory.side_files import SideSource, SideWriter
from turnstile.trajectory.whole import appears_whole


class FileForm(enum.StrEnum):
    """The forms of a trajectory file, by the end of its name."""

    JSONL = ".jsonl"
    JSONL_ZSTD = ".jsonl.zst"
    PARQUET = ".parquet"


class Unreadable(msgspec.Struct, frozen=True):
    """A record of a file that is no rollout."""

    code: str
    """E101, E102 or E103 of docs/reference/validate-codes.md."""
    place: str
    """`line 3` or `record 3`, counted from 1."""
    problem: str
    remedy: str


class RolloutWriter(Protocol):
    """Takes the rollouts of one file, in order."""

    def write(self, rollout: Rollout) -> None:
        """Add one rollout.

        Raises: CallerError if a number in it is not finite; SideBytesLost if bytes that it names cannot be had, and
        nothing of it is written then; StoreError if the disk refuses.
        """
        ...


def form_of(path: Path) -> FileForm:
    """The form that a file's name asks for. Raises: CallerError if it asks for none."""
    for form in FileForm:
        if path.name.endswith(form.value):
            return form
    raise CallerError(
        f"{path} is not named as a trajectory file", "Use a name that ends in `.jsonl`, `.jsonl.zst` or `.parquet`"
    )


@contextmanager
def open_writer(path: str | os.PathLike[str], side: SideSource | None = None) -> Generator[RolloutWriter]:
    """Write a trajectory file; it appears under its name, whole, when the block ends well, and else not at all.

    Args:
        path: Its name.
        side: Where media and side arrays come from; they are put beside the file as rollouts name them, by hash.
            None: nothing is put there.
    Raises: CallerError for a name of no known form; StoreError if the disk refuses.
    """
    target = Path(path)
    form = form_of(target)
    with appears_whole(target) as partial, _writer(partial, form) as writer:
        yield writer if side is None else _WithSides(writer, SideWriter(target, side))


def write(path: str | os.PathLike[str], rollouts: Iterable[Rollout], side: SideSource | None = None) -> int:
    """Write rollouts to a file as `open_writer` does; answers how many there were."""
    written = 0
    with open_writer(path, side) as writer:
        for rollout in rollouts:
            writer.write(rollout)
            written += 1
    return written


def read(path: str | os.PathLike[str]) -> Iterator[Rollout]:
    """Read a trajectory file, or all of a folder by name, one rollout after the other.

    Raises: CallerError if there is no such file, or at the first record that is no rollout.
    """
    for member in members(path):
        for found in records(member):
            if isinstance(found, Unreadable):
                raise CallerError(f"{found.place} of {member}: {found.problem}", found.remedy, code=found.code)
            yield found


def members(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """The trajectory files that a path stands for: itself, or those right in a folder, by name.

    Raises: CallerError if it is neither, or a folder without any.
    """
    source = Path(path)
    if not source.is_dir():
        return (source,)
    found = tuple(sorted(each for each in source.iterdir() if _is_trajectory_file(each)))
    if not found:
        raise CallerError(
            f"No trajectory file in {source}",
            "Give a folder with files named `.jsonl`, `.jsonl.zst` or `.parquet`; a store is exported first:"
            f" `turnstile export {source} -o rollouts.jsonl`",
            code="no_such_file",
            status=404,
        )
    return found


def _is_trajectory_file(path: Path) -> bool:
    # A file that is still being written has a name that begins with a dot.
    return path.is_file() and not path.name.startswith(".") and path.name.endswith(tuple(FileForm))


def records(path: str | os.PathLike[str]) -> Iterator[Rollout | Unreadable]:
    """Every record of a trajectory file, readable or not; a file that breaks off gives one last `Unreadable`.

    Raises: CallerError if there is no such file or its name is of no known form; StoreError if it cannot be opened.
    """
    source = Path(path)
    form = form_of(source)
    if not source.is_file():
        raise CallerError(f"{source} is no file", "Check the path", code="no_such_file", status=404)
    match form:
        case FileForm.PARQUET:
            return _each("record", read_parquet(source), from_fields)
        case FileForm.JSONL | FileForm.JSONL_ZSTD:
            return _each("line", _lines(source, form), decode_line)
        case _:
            assert_never(form)


_RecordT = TypeVar("_RecordT")


def _each(
    unit: str, sources: Iterator[_RecordT], understand: Callable[[_RecordT], Rollout]
) -> Iterator[Rollout | Unreadable]:
    for number in count(1):
        try:
            source = next(sources, None)
        except CallerError as error:
            yield Unreadable(error.code, f"{unit} {number}", error.problem, error.remedy)
            return
        if source is None:
            return
        try:
            found = understand(source)
        except CallerError as error:
            yield Unreadable(error.code, f"{unit} {number}", error.problem, error.remedy)
        else:
            yield found


def _lines(path: Path, form: FileForm) -> Iterator[bytes]:
    """Lines that hold something. Raises: CallerError if the compressed stream breaks off; StoreError for the disk."""
    try:
        with _opened(path, form) as file:
            for line in file:
                if line.strip():
                    yield line
    except OSError as error:
        if form is FileForm.JSONL_ZSTD and error.errno is None:
            problem = f"{path} is no zstd stream or is cut short: {error}"
            raise CallerError(problem, "Write the file anew; it is damaged", code="E101") from error
        raise StoreError(f"{path} cannot be read: {error}", "Check the file's permissions and the disk") from error


def _opened(path: Path, form: FileForm) -> io.BufferedReader:
    if form is FileForm.JSONL:
        return path.open("rb")
    # Arrow's stream is a raw file in all but its type.
    return io.BufferedReader(cast(io.RawIOBase, pa.input_stream(path, compression="zstd")), 1 << 20)


class _WithSides:
    """Puts what a rollout names beside the file before the rollout itself is written."""

    def __init__(self, writer: RolloutWriter, sides: SideWriter) -> None:
        self._writer = writer
        self._sides = sides

    def write(self, rollout: Rollout) -> None:
        self._sides.write(rollout)
        self._writer.write(rollout)


class _JsonlWriter:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, rollout: Rollout) -> None:
        self._file.write(encode_line(rollout) + b"\n")


@contextmanager
def _writer(path: Path, form: FileForm) -> Generator[RolloutWriter]:
    match form:
        case FileForm.JSONL:
            with path.open("wb") as file:
                yield _JsonlWriter(file)
        case FileForm.JSONL_ZSTD:
            with pa.output_stream(path, compression="zstd") as stream:
                yield _JsonlWriter(cast(IO[bytes], stream))
        case FileForm.PARQUET:
            writer = ParquetWriter(path)
            with closing(writer):
                yield writer
                writer.finish()
        case _:
            assert_never(form)
