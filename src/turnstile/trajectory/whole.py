"""A file that appears under its name when it is whole, and else not at all."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from turnstile.errors import StoreError


@contextmanager
def appears_whole(target: Path) -> Generator[Path]:
    """A name to write to; when the block ends well, what was written there gets the name `target`.

    Raises: StoreError if the disk refuses.
    """
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield partial
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(target)
    except OSError as error:
        raise StoreError(
            f"{target} cannot be written: {error.strerror or error}", "Check the folder and the disk"
        ) from error
    finally:
        partial.unlink(missing_ok=True)
