"""Closed rollouts that agents still ask for: as much of each as it takes to refuse them."""

from __future__ import annotations

from collections import OrderedDict
from typing import final

from turnstile.exchange.open_rollout import OpenRollout
from turnstile.history.forest import Forest
from turnstile.store import Journal

_MOST = 256


@final
class ClosedRollouts:
    """The latest that were asked for. Reading one back costs as much as it is long, and an agent may ask for ever."""

    def __init__(self, journal: Journal, most: int = _MOST) -> None:
        """Remember none yet.

        Args:
            journal: where what comes after an end is recorded.
            most: so many are remembered.
        """
        self._journal = journal
        self._most = most
        self._kept: OrderedDict[str, OpenRollout] = OrderedDict()

    def get(self, rollout_id: str) -> OpenRollout | None:
        """One that is remembered: its beginning, its end and what came after it, without its calls."""
        if rollout_id in self._kept:
            self._kept.move_to_end(rollout_id)
        return self._kept.get(rollout_id)

    def put(self, rollout: OpenRollout) -> OpenRollout:
        """Remember a closed rollout; what is remembered of it."""
        forest, opened = rollout.forest, rollout.opened
        records = (opened, *forest.rejected, *filter(None, [forest.finished]))
        shut = OpenRollout(Forest.of(records), opened, self._journal)
        shut.closing = True
        shut.refusals = rollout.refusals
        self._kept[opened.rollout_id] = shut
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return shut

    def drop(self, rollout_id: str) -> None:
        """It begins anew, or is gone."""
        self._kept.pop(rollout_id, None)
