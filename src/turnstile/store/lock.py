"""One writing process a store."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import final

from turnstile.errors import StoreError


@final
class StoreLock:
    """An advisory lock that the kernel drops with the process, however that ends."""

    def __init__(self, descriptor: int) -> None:
        """Own an open file that is already locked; `acquire` makes one."""
        self._descriptor = descriptor
        self.was_left = bool(os.pread(descriptor, 32, 0).strip())
        """Whether the process that had it last ended without releasing it: it was killed."""

    @classmethod
    def acquire(cls, file: Path) -> StoreLock:
        """Take the lock, creating its file.

        Raises: StoreError that names the process which has it, or says why the file cannot be made.
        """
        try:
            # Not inherited by child processes: an engine that outlives a killed proxy must not keep the store shut.
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(
                f"Cannot open the store's lock `{file}`: {error.strerror}",
                "Make the store's directory writable for this user",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise StoreError(
                f"The store `{file.parent}` is in use by process {holder or 'unknown'}",
                "Stop that process first; a second server needs a store of its own. Reading and exporting need no lock",
                code="store_in_use",
            ) from error
        lock = cls(descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        return lock

    def release(self) -> None:
        """Let the next process have the store; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)
