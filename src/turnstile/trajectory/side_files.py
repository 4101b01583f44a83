"""Media and side arrays beside a trajectory file: `FILE.media/<2 hex>/<sha256>` and `FILE.arrays/<sha256>.npy`."""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Protocol, assert_never

from turnstile.errors import StoreError
from turnstile.trajectory.shapes import Rollout, Sequence

_SHA256 = re.compile(r"[0-9a-f]{64}")


class SideKind(enum.StrEnum):
    """What lies beside a file, by the end of its folder's name."""

    MEDIA = "media"
    ARRAYS = "arrays"


class SideBytesLost(StoreError):
    """Bytes that a rollout names are not there, or are no longer what they were."""

    code = "side_bytes_lost"


class SideSource(Protocol):
    """Where the bytes of media and side arrays come from."""

    def side_bytes(self, kind: SideKind, name_sha256: str) -> bytes:
        """The bytes with a hash. Raises: StoreError if they are not there or cannot be read."""
        ...


def side_path(path: str | os.PathLike[str], kind: SideKind, name_sha256: str) -> Path:
    """Where the bytes with a hash lie beside a trajectory file."""
    folder = Path(f"{os.fspath(path)}.{kind.value}")
    match kind:
        case SideKind.MEDIA:
            return folder / name_sha256[:2] / name_sha256
        case SideKind.ARRAYS:
            return folder / f"{name_sha256}.npy"
        case _:
            assert_never(kind)


def named_by(sequence: Sequence) -> Iterator[tuple[SideKind, str]]:
    """The hashes that a sequence names."""
    for entry in sequence.media:
        yield SideKind.MEDIA, entry.sha256
    for entry in sequence.arrays.values():
        yield SideKind.ARRAYS, entry.sha256


class SideFiles:
    """Media and side arrays that lie beside a trajectory file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path

    @property
    def has_media(self) -> bool:
        """Whether there is a folder of media."""
        return Path(f"{os.fspath(self._path)}.{SideKind.MEDIA.value}").is_dir()

    def find(self, kind: SideKind, name_sha256: str) -> bytes | None:
        """The bytes of one file; None if it is not there, or if its name is no hash.

        Raises: StoreError if it cannot be read.
        """
        # The file's word becomes a path; anything but a hash could lead out of the folder.
        if not _SHA256.fullmatch(name_sha256):
            return None
        file = side_path(self._path, kind, name_sha256)
        try:
            return file.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"{file} cannot be read: {error}", "Check the disk") from error

    def side_bytes(self, kind: SideKind, name_sha256: str) -> bytes:
        """The bytes of one file. Raises: SideBytesLost if it is not there; StoreError if it cannot be read."""
        found = self.find(kind, name_sha256)
        if found is None:
            raise SideBytesLost(
                f"{side_path(self._path, kind, name_sha256)} is not there",
                f"Copy the file together with its `.{kind.value}` folder",
            )
        return found


class SideWriter:
    """Puts what rollouts name beside the trajectory file that they are written to, each hash once."""

    def __init__(self, path: Path, source: SideSource) -> None:
        """Write beside `path`, from `source`."""
        self._path = path
        self._source = source
        self._written: set[tuple[SideKind, str]] = set()

    def write(self, rollout: Rollout) -> None:
        """Write what is not there yet. Raises: StoreError if bytes are lost or the disk refuses."""
        for sequence in rollout.sequences:
            for named in named_by(sequence):
                if named not in self._written:
                    self._put(*named)
                    self._written.add(named)

    def _put(self, kind: SideKind, name_sha256: str) -> None:
        file = side_path(self._path, kind, name_sha256)
        if file.exists():
            return
        content = self._source.side_bytes(kind, name_sha256)
        if sha256(content).hexdigest() != name_sha256:
            raise SideBytesLost(
                f"The bytes of {kind.value} {name_sha256} have another hash", "Restore them from a copy"
            )
        partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as writing:
                writing.write(content)
                writing.flush()
                os.fsync(writing.fileno())
            partial.replace(file)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise StoreError(
                f"{file} cannot be written: {error.strerror or error}", "Check the folder and the disk"
            ) from error
