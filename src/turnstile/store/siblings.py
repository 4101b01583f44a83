"""The stores of the other processes of a deployment: whether a rollout is already in one of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import final

from turnstile.store.reader import Reader
from turnstile.store.schema import JOURNAL_FILE


@final
class Siblings:
    """Stores that other processes write to, looked into and never written."""

    def __init__(self, directories: Sequence[Path]) -> None:
        """Look into these directories; one that has no store yet is looked into again each time."""
        self._directories = tuple(directories)
        self._readers: dict[Path, Reader] = {}

    def holder(self, rollout_id: str) -> str:
        """Name of the store that has a rollout; empty if none has. Blocks for a look-up in each.

        Raises: StoreError if one of them cannot be read: whether it has the rollout is then not known.
        """
        for directory in self._directories:
            reader = self._readers.get(directory)
            if reader is None:
                if not (directory / JOURNAL_FILE).is_file():
                    continue
                reader = self._readers[directory] = Reader.open(directory)
            if reader.rollout(rollout_id) is not None:
                return directory.name
        return ""

    def close(self) -> None:
        """Let them go."""
        for reader in self._readers.values():
            reader.close()
