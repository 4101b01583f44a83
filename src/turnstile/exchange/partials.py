"""What a call has sampled and told so far: what is kept of it if it breaks off (docs/decisions/0019)."""

from __future__ import annotations

import msgspec

from turnstile.conversation import ReplyDelta
from turnstile.exchange.policy_log import Epoch
from turnstile.generation import Delta, FinishedItem, LogprobsMode
from turnstile.journal import PartialChoice
from turnstile.parsing.items import finished_items
from turnstile.parsing.parser import ParserSetup
from turnstile.reasons import FailReason
from turnstile.tokens import IdRun, LogprobRun, join

_TRUSTED = frozenset(
    {
        FailReason.ENGINE_UNREACHABLE,
        FailReason.ENGINE_REFUSED,
        FailReason.ENGINE_BROKEN,
        FailReason.ENGINE_ABORTED,
        FailReason.CONTEXT_OVERFLOW,
        FailReason.CLIENT_GONE,
    }
)
"""Failures that say nothing against the ids which came before them. An echo of other prompt ids does."""


class Reading(msgspec.Struct, frozen=True):
    """How a choice is read, and what else its record will need."""

    setup: ParserSetup
    placeholder_id: int | None
    """What stands for an image in prompts; None if the model is shown none."""
    epoch: Epoch
    """What was announced of the policy when its first request went out."""


class Partial:
    """One choice of a call that is being sampled."""

    def __init__(self, reading: Reading) -> None:
        """Begin before its first id."""
        self._reading = reading
        self._deltas: list[Delta] = []
        self._call_ids: dict[int, str] = {}

    def gain(self, delta: Delta) -> None:
        """More ids were sampled."""
        self._deltas.append(delta)

    def tell(self, deltas: tuple[ReplyDelta, ...]) -> None:
        """Something was handed out."""
        for call in (call for delta in deltas for call in delta.calls):
            if call.call_id:
                self._call_ids[call.index] = call.call_id

    @property
    def ids_S(self) -> IdRun:
        """All ids so far."""
        return join(delta.ids_S for delta in self._deltas)

    def choice(self, reason: FailReason) -> PartialChoice:
        """What the record of a failure says of it."""
        ids_S, reading = self.ids_S, self._reading
        numbers = [delta.numbers for delta in self._deltas if delta.numbers is not None]
        is_known = bool(numbers) and len(numbers) == len(self._deltas)
        logprobs_S = LogprobRun()
        for each in numbers:
            logprobs_S += each.logprobs_S
        lowest, highest = reading.epoch.announced()
        return PartialChoice(
            logprobs_S=logprobs_S if is_known and len(logprobs_S) == len(ids_S) else None,
            logprobs_mode=numbers[0].mode if is_known else LogprobsMode.NONE,
            logprobs_temperature=numbers[0].temperature if is_known else None,
            items=self._items(ids_S) if reason in _TRUSTED else (),
            policy_min=lowest,
            policy_max=highest,
            placeholders_S=tuple(at for at, token_id in enumerate(ids_S) if token_id == reading.placeholder_id),
        )

    def _items(self, ids_S: IdRun) -> tuple[FinishedItem, ...]:
        setup = self._reading.setup
        if any(not 0 <= token_id < setup.vocabulary.size for token_id in ids_S):
            return ()
        return finished_items(setup, ids_S, tuple(self._call_ids.values()))
