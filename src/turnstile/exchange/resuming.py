"""Broken-off answers whose finished items come back become a part of the forest before anything is matched."""

from __future__ import annotations

from turnstile.conversation import Call
from turnstile.exchange.rollouts import OpenRollout
from turnstile.exchange.world import World
from turnstile.history.resuming import resumable
from turnstile.journal import AnswerResumed
from turnstile.templates.late_system import seat_late_system
from turnstile.templates.plan import head_of_call


async def take_up_again(world: World, rollout: OpenRollout, call: Call) -> None:
    """Hold the beginnings of broken-off answers that a request goes on from (public case F6); mostly there are none.

    Raises: CallerError as planning does; StoreError if the journal cannot be written.
    """
    if not rollout.forest.has_broken_off:
        return
    call = seat_late_system(world.served, call).call
    head = head_of_call(world.served, call, call.messages)
    while (found := resumable(rollout.forest, head, call)) is not None:
        rollout_id, ref = rollout.opened.rollout_id, found.ref
        await rollout.keep(AnswerResumed(rollout_id, ref.call_id, ref.choice, found.length_S, world.now()))
