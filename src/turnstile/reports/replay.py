"""The recorded requests of a rollout through the pipeline again, with an engine that answers as the first one did.

With what the rollout was served with, every prompt must come out with the very ids that were recorded. With another
template or policy the same run says what would have happened: the agent's requests and the model's words stay, and
the prompts, forks and sequences are those that would have come of them.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import final

import msgspec

from turnstile.conversation import Call, Message, ToolSpec
from turnstile.engines.recorded import RecordedEngine
from turnstile.errors import TurnstileError
from turnstile.exchange.failures import Progress
from turnstile.exchange.inflight import Flight
from turnstile.exchange.rollouts import OpenRollout
from turnstile.exchange.run import run
from turnstile.exchange.world import World
from turnstile.generation import Delta, Head, Numbers, Prompt, Retention
from turnstile.history.broken_off import BrokenOff, broken_off
from turnstile.history.forest import Forest
from turnstile.journal import (
    AnswerUndelivered,
    CallFailed,
    CallJoined,
    CallStarted,
    Record,
    TurnCommitted,
)
from turnstile.parsing.formats import AnswerFormat
from turnstile.reports.text_client import request_messages
from turnstile.store import Journal
from turnstile.templates.served import Served


class ReplayModel(msgspec.Struct, frozen=True):
    """What a replay serves."""

    served: Served
    answer_format: AnswerFormat


class Setting(msgspec.Struct, frozen=True):
    """What a replay runs under."""

    model: Callable[[Head], ReplayModel]
    """What is served for a recorded head."""
    retention: Retention | None
    """None: the policy that the rollout was recorded with."""
    show: Callable[[int, int], None]
    """Told how many of how many records are done."""


class Replayed(msgspec.Struct, frozen=True):
    """A rollout as it was recorded, and what came of its requests now."""

    then: Forest
    now: Forest
    refused: dict[str, TurnstileError]
    """Calls that could not be planned now, by id."""


async def replay(records: Sequence[Record], setting: Setting) -> Replayed:
    """Run the recorded requests again, in the order in which the journal has their beginnings and ends.

    Args:
        records: of one attempt, its beginning first.
        setting: what to serve, and how.

    Raises: ValueError if the records do not begin with an opening; StoreError if they contradict each other, or there
        is no room for a temporary journal.
    """
    then = Forest.of(records)
    if then.opened is None:
        raise ValueError("the records begin no rollout")
    opened = then.opened
    if setting.retention is not None:
        opened = msgspec.structs.replace(opened, retention=setting.retention)
    with tempfile.TemporaryDirectory(prefix="turnstile-replay-") as folder:
        journal = Journal.open(Path(folder))
        try:
            await journal.append(opened)
            stage = _Stage(then, OpenRollout(Forest.of([opened]), opened, journal), setting)
            await stage.play_all(records, setting.show)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            journal.close()
    return Replayed(then, stage.rollout.forest, stage.refused)


class _Cue(msgspec.Struct, frozen=True):
    """A call on the stage: what lets its answer out, and what to wait for."""

    engine: RecordedEngine
    task: asyncio.Task[None]
    flight: Flight


@final
class _Stage:
    """One replay: each record is the cue for what it once was the trace of."""

    def __init__(self, then: Forest, rollout: OpenRollout, setting: Setting) -> None:
        self.rollout = rollout
        self.refused: dict[str, TurnstileError] = {}
        self._then = then
        self._setting = setting
        self._running: dict[str, _Cue] = {}

    async def play_all(self, records: Sequence[Record], show: Callable[[int, int], None]) -> None:
        """Do all again; calls whose end is not recorded are given up."""
        async with asyncio.TaskGroup() as calls:
            for done, record in enumerate(records, 1):
                await self._play(record, calls)
                show(done, len(records))
            for cue in self._running.values():
                cue.task.cancel()

    async def _play(self, record: Record, calls: asyncio.TaskGroup) -> None:
        match record:
            case CallStarted():
                await self._start(record, calls)
            case TurnCommitted() | CallFailed():
                await self._end(record.call_id)
            case CallJoined() | AnswerUndelivered() if record.call_id in self.rollout.forest.calls:
                await self.rollout.keep(record)
            case _:
                pass

    async def _start(self, started: CallStarted, calls: asyncio.TaskGroup) -> None:
        state = self._then.calls[started.call_id]
        choices = state.committed.choices if state.committed is not None else ()
        broken = () if state.failed is None else broken_off(started, state.failed)
        engine = RecordedEngine(choices, {each.ref.choice: _sampled_of(each) for each in broken})
        ended_at = state.committed.finished_at if state.committed is not None else started.started_at
        head = self._then.heads[started.head]
        model = self._setting.model(head)
        model = msgspec.structs.replace(model, served=model.served.with_literals(head.literal_specials))
        said = (*(choice.message for choice in choices), *(part.said for each in broken for part in each.partial.items))
        world = _world(model, engine, started, (said, ended_at))
        flight = Flight(started.body_digest, started.idempotency_key, started.call_id)
        progress = Progress(started.rollout_id, started.dialect)
        task = calls.create_task(run(world, self.rollout, call_of(self._then, started), flight, progress))
        if await flight.has_begun():
            self._running[started.call_id] = _Cue(engine, task, flight)
            return
        await task
        if isinstance(flight.outcome, TurnstileError):
            self.refused[started.call_id] = flight.outcome

    async def _end(self, call_id: str) -> None:
        cue = self._running.pop(call_id, None)
        if cue is not None:
            cue.engine.release()
            await cue.task


def _world(
    model: ReplayModel, engine: RecordedEngine, started: CallStarted, ended: tuple[tuple[Message, ...], datetime]
) -> World:
    """The world as one call met it: its clock, its dice, the ids that were minted for it."""
    said, ended_at = ended
    minted = _minted(said, started.call_id)
    clock = iter((started.started_at,))

    async def off_loop(work: Callable[[], Prompt]) -> Prompt:
        return await asyncio.to_thread(work)

    return World(
        served=model.served,
        answer_format=model.answer_format,
        engine=engine,
        now=lambda: next(clock, ended_at),
        mint_call_id=lambda: next(minted),
        draw_seed=lambda below: (started.draw.seed or 0) % below,
        off_loop=off_loop,
    )


def _sampled_of(broken: BrokenOff) -> Delta:
    known = broken.partial
    if known.logprobs_S is None:
        return Delta(broken.ids_S)
    return Delta(broken.ids_S, numbers=Numbers(known.logprobs_S, known.logprobs_mode, known.logprobs_temperature))


def _minted(said: tuple[Message, ...], call_id: str) -> Iterator[str]:
    """The recorded ids of the tool calls in an answer; made-up ones where now more calls are read out of it."""
    yield from (call.call_id for message in said for call in message.calls)
    number = 0
    while True:
        yield f"replayed-{call_id}-{number}"
        number += 1


def call_of(forest: Forest, started: CallStarted) -> Call:
    """The request of a recorded call, as far as its prompt and the reading of its answer depend on it."""
    head = forest.heads[started.head]
    return Call(
        dialect=started.dialect,
        model=head.model,
        messages=request_messages(forest, started),
        tools=tuple(ToolSpec(_tool_name(declaration), declaration) for declaration in head.tools),
        tool_choice=started.tool_choice,
        sampling=started.sampling,
        template_kwargs=head.template_kwargs,
        ending=started.ending,
        agent_name=started.agent_name,
        kind=started.kind,
        purpose=started.purpose,
        parent_agent=started.parent_agent,
    )


class _Function(msgspec.Struct, frozen=True):
    name: str = ""


class _Tool(msgspec.Struct, frozen=True):
    function: _Function = _Function()


def _tool_name(declaration: str) -> str:
    return msgspec.json.decode(declaration, type=_Tool).function.name
