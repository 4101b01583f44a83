"""The one path of a request, from a call to a durable turn (style.md section 2, steps 3 to 10).

Three waits on the world, marked `!`; everything else is a function on values. Nobody here knows whether the
client streams, which dialect it speaks or which engine answers.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from turnstile.conversation import Answer, Call, Message, Reply, TokenLogprob
from turnstile.engines.base import Engine
from turnstile.errors import TurnstileError
from turnstile.exchange.checks import verify
from turnstile.exchange.draws import SEED_SPACE, choices_of, draw_for, refuse_what_is_not_honoured
from turnstile.exchange.failures import Progress, failure
from turnstile.exchange.inflight import Flight
from turnstile.exchange.rollouts import OpenRollout
from turnstile.generation import Delta, Draw, Match, Prompt
from turnstile.history.match import match
from turnstile.journal import CallStarted, SampledChoice, TurnCommitted
from turnstile.parsing.formats import AnswerFormat
from turnstile.parsing.grammar import constraint_for
from turnstile.parsing.parser import Parser, ParserSetup
from turnstile.templates.plan import head_of_call, plan
from turnstile.templates.served import Served

T = TypeVar("T")


class World(msgspec.Struct, frozen=True):
    """What a call meets on its way; made once at start."""

    served: Served
    answer_format: AnswerFormat
    engine: Engine
    now: Callable[[], datetime]
    mint_call_id: Callable[[], str]
    draw_seed: Callable[[int], int]
    """A random integer below its argument."""
    policy_version: Callable[[], int | None]
    """The weight version that the engine runs now, as announced; None = unknown."""
    off_loop: Callable[[Callable[[], Prompt]], Awaitable[Prompt]]
    """Runs rendering and tokenizing away from the event loop."""


async def run(world: World, rollout: OpenRollout, call: Call, flight: Flight) -> None:
    """Plan, sample, verify and commit one call; whatever happens, the flight lands and the journal knows."""
    turn = _Turn(world, rollout, call, flight, progress := Progress(rollout.opened.rollout_id, call.dialect))
    try:
        answer = await _take(turn)
    except (TurnstileError, asyncio.CancelledError) as error:
        record, told = failure(error, progress, world.now())
        await rollout.keep(record)
        flight.land(told)
        rollout.forget(flight)
    else:
        flight.land(answer)


@dataclasses.dataclass(frozen=True, slots=True)
class _Turn:
    world: World
    rollout: OpenRollout
    call: Call
    flight: Flight
    progress: Progress


async def _take(turn: _Turn) -> Answer:
    world, rollout, call, flight = turn.world, turn.rollout, turn.call, turn.flight
    head = head_of_call(world.served, call, call.messages)
    held = match(rollout.forest, head, call)
    prompt = await world.off_loop(lambda: plan(world.served, call, held, rollout.opened.opened_at))
    constraint = constraint_for(world.answer_format, call, prompt.opening)
    seed = world.draw_seed(SEED_SPACE)
    draw = draw_for(call, constraint, world.served.stop_ids, seed, rollout.opened.rollout_id)
    refuse_what_is_not_honoured(draw, world.engine.capabilities)
    flight.history = prompt.history
    known = head.fingerprint in rollout.forest.heads
    started = CallStarted(
        rollout_id=rollout.opened.rollout_id,
        call_id=flight.call_id,
        started_at=world.now(),
        dialect=call.dialect,
        head=head.fingerprint,
        new_head=None if known else head,
        engine=world.engine.capabilities.engine,
        engine_version=world.engine.capabilities.version,
        parent=prompt.parent,
        held_length=len(prompt.held_T),
        added_A=prompt.added_A,
        added_segments=prompt.added_segments,
        prompt_sha256=prompt.ids_T.sha256(),
        history=prompt.history,
        covered_M=held.covered_M if prompt.parent else 0,
        new_M=held.new_M if prompt.parent else _whole_conversation(held),
        sampling=call.sampling,
        draw=draw,
        body_digest=flight.digest,
        idempotency_key=call.retry.idempotency_key,
        agent_name=call.agent_name,
        notes=(*held.notes, *prompt.notes),
    )
    await rollout.keep(started)  # !
    turn.progress.call_id = flight.call_id
    draws = choices_of(draw, call.sampling)
    choices = await _together([_sample(turn, prompt, each) for each in draws])  # !
    await rollout.keep(  # !
        TurnCommitted(rollout.opened.rollout_id, flight.call_id, world.now(), tuple(kept for kept, _ in choices))
    )
    completion = sum(len(kept.ids_S) for kept, _ in choices)
    usage = msgspec.structs.replace(choices[0][0].usage, completion_tokens=completion)
    return Answer(tuple(reply for _, reply in choices), usage)


def _whole_conversation(held: Match) -> tuple[Message, ...]:
    if held.parent is None:
        return held.new_M
    return (*held.parent.history_M, held.parent.message, *held.new_M)


async def _sample(turn: _Turn, prompt: Prompt, draw: Draw) -> tuple[SampledChoice, Reply]:
    world, call, flight = turn.world, turn.call, turn.flight
    vocabulary = world.served.tokenizer
    parser = Parser(
        ParserSetup(
            vocabulary=vocabulary,
            format=world.answer_format,
            opening=prompt.opening,
            prefill=prompt.prefill,
            tools=call.tools,
            tool_choice=call.tool_choice,
            stop=draw.stop,
            stop_ids=draw.stop_ids,
            choice=draw.choice,
            mint=world.mint_call_id,
        )
    )
    logprobs: list[TokenLogprob] = []

    async def emit(delta: Delta) -> None:
        if draw.choice == 0:
            turn.progress.partial_S += delta.ids_S
        logprobs.extend(delta.logprobs)
        flight.tell(parser.feed(delta))

    before = world.policy_version()
    generation = await world.engine.generate(prompt, draw, emit)
    verdict = verify(prompt, draw, generation, vocabulary)
    parsed = parser.finish(generation)
    flight.tell(parsed.flush)
    said = generation.policy_version
    kept = SampledChoice(
        choice=draw.choice,
        ids_S=generation.ids_S,
        logprobs_S=generation.logprobs_S,
        message=parsed.message,
        reply_finish=parsed.finish,
        finish=verdict.finish,
        engine_finish_reason=generation.engine_finish_reason,
        usage=generation.usage,
        logprobs_mode=generation.logprobs_mode,
        logprobs_temperature=generation.logprobs_temperature,
        cut=parsed.cut,
        stop_string=parsed.stop_string,
        engine_request_id=generation.engine_request_id,
        sampler_echo=generation.sampler_echo,
        policy_min=before if said is None else said,
        policy_max=world.policy_version() if said is None else said,
        incomplete=verdict.incomplete,
        notes=(*generation.notes, *verdict.notes, *parsed.notes),
    )
    return kept, Reply(parsed.message, parsed.finish, tuple(logprobs), parsed.stop_string)


async def _together(work: list[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; the first failure cancels the rest and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
