"""Files by the sha256 of their bytes: tokenizers, chat templates, media."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import final

from turnstile.errors import StoreError
from turnstile.store.schema import BLOBS_DIRECTORY

_SHA256 = re.compile(r"[0-9a-f]{64}")
_DRAFT = ".draft-"


@final
class Blobs:
    """The content-addressed files of a store. Any number of processes may read and write them at once."""

    def __init__(self, directory: Path) -> None:
        """Use the blobs of the store in `directory`; nothing is made before the first `put`."""
        self._root = directory / BLOBS_DIRECTORY

    def put(self, content: bytes) -> str:
        """Keep bytes, durable on return; bytes that are there already are not written again.

        Returns: their hex sha256, by which `get` finds them.
        Raises: StoreError if they cannot be written; no partial file is left under the name.
        """
        sha256 = hashlib.sha256(content).hexdigest()
        file = self._file(sha256)
        if not self.ask_for(sha256):
            try:
                _write_whole(file, content)
            except OSError as error:
                raise StoreError(
                    f"Cannot write {len(content)} bytes to `{file}`: {error.strerror}",
                    "Free space there and make the directory writable for this user",
                ) from error
        return sha256

    def has(self, sha256: str) -> bool:
        """Whether bytes with this hash are kept, without reading them."""
        return self._file(sha256).exists()

    def size(self, sha256: str) -> int:
        """How many bytes are kept under this hash; 0 if none."""
        try:
            return self._file(sha256).stat().st_size
        except OSError:
            return 0

    def ask_for(self, sha256: str) -> bool:
        """Whether bytes with this hash are kept; if so, nobody removes them for a while (`remove_quiet`).

        Whoever is about to name a blob in a record asks for it first.
        """
        file = self._file(sha256)
        try:
            os.utime(file)
        except FileNotFoundError:
            return False
        except OSError:
            # Another user's file, or a medium that cannot be written: nobody removes anything there either.
            return file.exists()
        # Looked at once more: it may have been on its way out when its time was set.
        return file.exists()

    def remove_quiet(self, sha256: str, quiet_s: float, now_s: float) -> int:
        """Remove a blob that nobody has put or asked for in the last `quiet_s` seconds.

        It goes under another name first, so that who asks for it from then on writes it anew, and comes back if
        somebody had asked before. `now_s` is the clock's, in seconds since 1970.

        Returns: how many bytes were removed; 0 if it was not quiet, or not there.
        Raises: StoreError if the directory cannot be written.
        """
        file = self._file(sha256)
        leaving = file.with_name(f"{_DRAFT}{sha256}")
        try:
            if now_s - file.stat().st_mtime < quiet_s:
                return 0
            os.replace(file, leaving)
            found = leaving.stat()
            if now_s - found.st_mtime < quiet_s:
                os.replace(leaving, file)
                return 0
            leaving.unlink()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise StoreError(
                f"Cannot remove `{file}`: {error.strerror}", "Make the directory writable for this user"
            ) from error
        return found.st_size

    def get(self, sha256: str) -> bytes:
        """The bytes with this hash.

        Raises: StoreError if they are not there (code `blob_missing`), not readable, or no longer the same.
        """
        if not _SHA256.fullmatch(sha256):
            raise StoreError(f"`{sha256}` is no sha256", "Give 64 lower-case hexadecimal digits", code="blob_missing")
        file = self._file(sha256)
        try:
            content = file.read_bytes()
        except FileNotFoundError as error:
            raise StoreError(
                f"The store has no `{file}`",
                "Copy the whole store directory, `blobs` included",
                code="blob_missing",
            ) from error
        except OSError as error:
            raise StoreError(
                f"Cannot read `{file}`: {error.strerror}", "Make the directory readable for this user"
            ) from error
        if hashlib.sha256(content).hexdigest() != sha256:
            raise StoreError(
                f"`{file}` is damaged: its bytes have another hash than its name",
                "Delete that file and let the server write it again",
                code="blob_damaged",
            )
        return content

    def _file(self, sha256: str) -> Path:
        return self._root / sha256[:2] / sha256


def _write_whole(file: Path, content: bytes) -> None:
    """Write under another name, sync, rename: a name never stands for half a file, not even after power loss."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=file.parent, prefix=_DRAFT)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, file)
        _sync_directories(file.parent)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def _sync_directories(directory: Path) -> None:
    """Make names durable: a file that was synced can still lose its name with the machine (`man 2 fsync`)."""
    for each in (directory, directory.parent):
        descriptor = os.open(each, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def blob_files(directory: Path) -> Iterator[Path]:
    """The files of all blobs of the store in `directory`, in order; each is named by its hash."""
    return (file for file in sorted((directory / BLOBS_DIRECTORY).glob("??/*")) if _SHA256.fullmatch(file.name))


def leaving_name(draft: Path) -> str:
    """The hash of the blob that a draft was before it began to leave; empty if it is half-written."""
    name = draft.name.removeprefix(_DRAFT)
    return name if _SHA256.fullmatch(name) else ""


def draft_files(directory: Path) -> Iterator[Path]:
    """What writers that were killed left behind."""
    return (directory / BLOBS_DIRECTORY).glob(f"??/{_DRAFT}*")
