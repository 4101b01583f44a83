"""How long each open rollout has been without a record, by a clock that no change of the date moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import final


@final
class IdleWatch:
    """When each rollout last had a record in this process; before its first one, when the process began.

    So a restart gives every open rollout the whole time again: while the server was away no agent could call.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float]) -> None:
        """Watch rollouts.

        Args:
            limit_s: after how long one is idle; 0: never.
            clock: seconds, never going back.
        """
        self.limit_s = limit_s
        self._clock = clock
        self._began = clock()
        self._touched: dict[str, float] = {}

    def touched(self, rollout_id: str) -> None:
        """A rollout had a record."""
        if self.limit_s:
            self._touched[rollout_id] = self._clock()

    def forget(self, rollout_id: str) -> None:
        """A rollout is closed."""
        self._touched.pop(rollout_id, None)

    def is_idle(self, rollout_id: str) -> bool:
        """Whether a rollout has had no record for too long."""
        since = self._touched.get(rollout_id, self._began)
        return bool(self.limit_s) and self._clock() - since >= self.limit_s
