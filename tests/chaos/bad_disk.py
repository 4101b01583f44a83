"""The Python side of `bad_disk.c`: builds it, gives its orders, and says what a power cut would have left."""

from __future__ import annotations

import mmap
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).with_name("bad_disk.c")
_PAGE = struct.Struct("<iiiiqq")
_HEAD = struct.Struct("<qqqq")
_SECTOR = 512
"""What a disk writes in one piece."""


def compiler() -> str | None:
    """A C compiler of this machine."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


class BadDisk:
    """The disk under one directory, for processes that are started with `environment`."""

    def __init__(self, folder: Path, root: Path, *, remembers: bool = False) -> None:
        """Build it in `folder` for the files under `root`; `remembers` = it writes down every change."""
        folder.mkdir(parents=True, exist_ok=True)
        library, page, self.log = folder / "bad_disk.so", folder / "control", folder / "disk.log"
        build = [compiler() or "cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
        subprocess.run(build, check=True)
        page.write_bytes(bytes(mmap.PAGESIZE))
        with page.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self.root = root.resolve()
        self.environment = {
            "LD_PRELOAD": str(library),
            "BAD_DISK_ROOT": str(self.root),
            "BAD_DISK_CONTROL": str(page),
            **({"BAD_DISK_LOG": str(self.log)} if remembers else {}),
        }

    def order(self, *, write_errno: int = 0, sync_errno: int = 0, write_ms: int = 0, sync_ms: int = 0) -> None:
        """How it behaves from now on: which error writes and syncs end in, and how long they take before."""
        struct.pack_into("<iiii", self._page, 0, write_errno, sync_errno, write_ms, sync_ms)

    @property
    def syncs(self) -> int:
        """How many syncs were asked for so far."""
        return _PAGE.unpack_from(self._page)[5]

    def length(self) -> int:
        """Where its memory ends now: everything that it did so far is before this."""
        return self.log.stat().st_size if self.log.exists() else 0

    def after_power_cut(self, end: int, target: Path, draw: random.Random | None, written_back: int = 0) -> None:
        """What is on the disk if the machine stopped when its memory was `end` bytes long.

        What was synced is there, a new name once its directory was synced, and so is what was done before the system
        wrote everything back, when its memory was `written_back` bytes long. Of the rest each sector and each name is
        there by a toss of `draw`; nothing is where there is no draw. A file's first name counts as durable with it.
        """
        left = _Left()
        for at, kind, path, offset, content in self._changes(end):
            if kind == "s":
                left.sync(path)
            else:
                left.change(path, kind, offset, content)
            if at <= written_back:
                left.sync_all()
        if draw is not None:
            left.survive(draw)
        for path, content in left.durable.items():
            file = target / Path(path).relative_to(self.root)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    def _changes(self, end: int) -> Iterator[tuple[int, str, str, int, bytes]]:
        with self.log.open("rb") as file:
            while file.tell() < end:
                kind, path_length, offset, length = _HEAD.unpack(file.read(_HEAD.size))
                path = file.read(path_length).decode()
                content = file.read(length) if chr(kind) in "wr" else b""
                # The shared-memory index is no file of the disk: SQLite makes it anew.
                if not path.endswith("-shm"):
                    yield file.tell(), chr(kind), path, offset, content


class _Left:
    """What a disk would have after a power cut."""

    def __init__(self) -> None:
        self.durable: dict[str, bytearray] = {}
        self._changed: dict[str, list[tuple[str, int, bytes]]] = {}
        self._named: list[tuple[str, str]] = []
        """From, to; in order."""

    def change(self, path: str, kind: str, offset: int, content: bytes) -> None:
        """Something that no sync has followed."""
        if kind == "r":
            self._named.append((path, content.decode()))
        else:
            self._changed.setdefault(path, []).append((kind, offset, content))

    def sync(self, path: str) -> None:
        """Of a file's bytes, or of a directory's names."""
        for change in self._changed.pop(path, []):
            _change(self.durable.setdefault(path, bytearray()), *change)
        for named in [each for each in self._named if str(Path(each[1]).parent) == path]:
            self._rename(named)

    def sync_all(self) -> None:
        """What the system does every few seconds, in some order."""
        for path in [*self._changed]:
            self.sync(path)
        for named in [*self._named]:
            self._rename(named)

    def survive(self, draw: random.Random) -> None:
        """What had reached the disk without being asked for."""
        for path, changes in self._changed.items():
            _survive(self.durable.setdefault(path, bytearray()), changes, draw)
        for named in [*self._named]:
            if draw.random() < 0.5:
                self._rename(named)

    def _rename(self, named: tuple[str, str]) -> None:
        self._named.remove(named)
        if named[0] in self.durable:
            self.durable[named[1]] = self.durable.pop(named[0])


def _change(content: bytearray, kind: str, offset: int, written: bytes) -> None:
    if kind == "t":
        del content[offset:]
    content.extend(bytes(max(0, offset + len(written) - len(content))))
    content[offset : offset + len(written)] = written


def _survive(content: bytearray, changes: list[tuple[str, int, bytes]], draw: random.Random) -> None:
    for kind, offset, written in changes:
        if kind == "t":
            if draw.random() < 0.5:
                _change(content, kind, offset, written)
            continue
        for start in range(0, len(written), _SECTOR):
            if draw.random() < 0.5:
                _change(content, kind, offset + start, written[start : start + _SECTOR])
