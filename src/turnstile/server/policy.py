"""The weight version that the engine runs, where only the trainer can say it."""

from __future__ import annotations


class Policy:
    """The version announced last; None until one is."""

    def __init__(self) -> None:
        self._version: int | None = None

    def announce(self, version: int) -> None:
        """From now on the engine samples with this version."""
        self._version = version

    def version(self) -> int | None:
        """The version announced last."""
        return self._version
