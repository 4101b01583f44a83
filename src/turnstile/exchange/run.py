"""The one path of a request, from a call to a durable turn (docs/decisions/0001).

Three waits on the world, marked `!`; everything else is a function on values. Nobody here knows whether the
client streams, which dialect it speaks or which engine answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec

from turnstile.conversation import Answer, Call, Reply, TokenLogprob
from turnstile.engines.pool import Seat, seat_of
from turnstile.errors import TurnstileError
from turnstile.exchange.checks import verify
from turnstile.exchange.draws import SEED_SPACE, Overflow, choices_of, clamped, draw_for, refuse_what_is_not_honoured
from turnstile.exchange.failures import Progress, failure
from turnstile.exchange.image_checks import check_agreement, with_images
from turnstile.exchange.images import expanded_length, keep_added
from turnstile.exchange.inflight import Flight
from turnstile.exchange.partials import Reading
from turnstile.exchange.policy_log import Epoch
from turnstile.exchange.prompts import prompt_for
from turnstile.exchange.records import Planned, Sampled, call_started, sampled_choice, seated
from turnstile.exchange.resuming import take_up_again
from turnstile.exchange.rollouts import OpenRollout
from turnstile.exchange.sampling import Source, drawn
from turnstile.exchange.timeline import Stage
from turnstile.exchange.world import World
from turnstile.generation import Delta, Draw, Prompt
from turnstile.journal import SampledChoice, TurnCommitted
from turnstile.parsing.engine_reading import parser_for
from turnstile.parsing.grammar import constraint_for
from turnstile.parsing.parser import ParserSetup

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class _Turn:
    world: World
    rollout: OpenRollout
    call: Call
    flight: Flight
    progress: Progress
    seat: Seat


async def run(world: World, rollout: OpenRollout, call: Call, flight: Flight, progress: Progress) -> None:
    """Plan, sample, verify and commit one call; the flight lands and the journal knows, unless Turnstile has a bug.

    It has its place among the calls that run until its end is durable.
    """
    async with contextlib.AsyncExitStack() as place:
        try:
            with flight.times.stage(Stage.QUEUE):
                await place.enter_async_context(world.places.place(rollout.opened.rollout_id))
            flight.has_place = True
            seat = seat_of(world.engine, rollout.opened.rollout_id, rollout.last_engine)
            answer = await _take(_Turn(world, rollout, call, flight, progress, seat))
        except (TurnstileError, asyncio.CancelledError) as error:
            await _fail(world, rollout, flight, progress, error)
        else:
            flight.land(answer)


async def _fail(
    world: World,
    rollout: OpenRollout,
    flight: Flight,
    progress: Progress,
    error: TurnstileError | asyncio.CancelledError,
) -> None:
    # A cancellation may come while a record is being written, and the record is then there all the same.
    if (answered := rollout.answered(flight.call_id)) is not None:
        flight.land(answered)
        return
    progress.call_id = flight.call_id if flight.call_id in rollout.forest.calls else ""
    record, told = failure(error, progress, world.now())
    # A request that never became a call is refused: an agent may repeat one for ever.
    # Nor is anything written of one that a full disk refuses while it waits.
    if progress.call_id or (told.code != "disk_low" and rollout.counts_refusal()):
        await rollout.keep_at_last(record)
    flight.land(told)
    rollout.repeats.failed(flight)


async def _take(turn: _Turn) -> Answer:
    world, rollout, flight = turn.world, turn.rollout, turn.flight
    with flight.times.stage(Stage.PLAN):
        planned = await _planned(turn)
    flight.history = planned.prompt.history
    await keep_added(world.gallery, planned.prompt, planned.shown)
    started = call_started(planned, rollout.forest, flight, world.engine.capabilities, world.now())
    started = msgspec.structs.replace(started, heard=rollout.repeats.newly_heard())
    with flight.times.stage(Stage.STORE):
        await rollout.keep(seated(started, turn.seat))  # !
    flight.kept()
    draws = choices_of(planned.draw, turn.call.sampling)
    choices = await _together([_sample(turn, planned, draw) for draw in draws])  # !
    check_agreement([kept for kept, _ in choices])
    turned = TurnCommitted(rollout.opened.rollout_id, flight.call_id, world.now(), tuple(kept for kept, _ in choices))
    with flight.times.stage(Stage.STORE):
        await rollout.keep(turned)  # !
    world.answered(rollout.forest, flight.call_id)
    completion = sum(len(kept.ids_S) for kept, _ in choices)
    usage = msgspec.structs.replace(choices[0][0].usage, completion_tokens=completion)
    return Answer(tuple(reply for _, reply in choices), usage)


async def _planned(turn: _Turn) -> Planned:
    world, rollout, call = turn.world, turn.rollout, turn.call
    await take_up_again(world, rollout, call)
    planned = await prompt_for(world, rollout.forest, rollout.opened, call)
    constraint = constraint_for(world.answer_format, call, planned.prompt.opening)
    seed = world.draw_seed(SEED_SPACE)
    draw = draw_for(call, constraint, world.served.stop_ids, seed, rollout.opened.rollout_id)
    refuse_what_is_not_honoured(call, draw, world.engine.capabilities)
    if world.overflow is Overflow.CLAMP:
        length = expanded_length(planned.prompt, planned.shown, rollout.forest)
        draw = clamped(draw, length, world.engine.capabilities.context_length)
    return Planned(call, planned.head, planned.held, planned.prompt, draw, planned.shown)


async def _sample(turn: _Turn, planned: Planned, draw: Draw) -> tuple[SampledChoice, Reply]:
    world, flight, prompt = turn.world, turn.flight, planned.prompt
    setup = _setup(turn, prompt, draw)
    parser = parser_for(setup)
    logprobs: list[TokenLogprob] = []
    images = world.served.facts.images
    placeholder_id = None if images is None else images.placeholder_id

    def begin(epoch: Epoch) -> None:
        turn.progress.begin(draw.choice, Reading(setup, placeholder_id, epoch))

    async def emit(delta: Delta) -> None:
        turn.progress.sampled(draw.choice, delta)
        logprobs.extend(delta.logprobs)
        told = parser.feed(delta)
        turn.progress.told(draw.choice, told)
        flight.tell(*told)

    vocabulary = world.served.tokenizer
    source = Source(turn.seat, world.gate, world.policy, vocabulary, world.continuations, begin, flight.times)
    completion = await drawn(source, prompt, draw, emit)
    generation = completion.generation
    verdict = verify(prompt, draw, generation, world.served.tokenizer, placeholder_id)
    verdict = with_images(verdict, prompt, planned.shown, generation)
    parsed = parser.finish(generation)
    flight.tell(*parsed.flush)
    sampled = Sampled(generation, verdict, parsed, tuple(logprobs))
    reply = Reply(parsed.message, parsed.finish, sampled.logprobs, parsed.stop_string)
    return sampled_choice(draw.choice, sampled, completion), reply


def _setup(turn: _Turn, prompt: Prompt, draw: Draw) -> ParserSetup:
    return ParserSetup(
        vocabulary=turn.world.served.tokenizer,
        format=turn.world.answer_format,
        mint=turn.world.mint_call_id,
        opening=prompt.opening,
        prefill=prompt.prefill,
        tools=turn.call.tools,
        tool_choice=turn.call.tool_choice,
        stop=draw.stop,
        stop_ids=draw.stop_ids,
        choice=draw.choice,
    )


async def _together(work: list[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; the first failure cancels the rest and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
