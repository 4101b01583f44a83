"""Streams that a client leaves at any byte: the record and all later turns stay right, in every dialect.

What the server does depends on how many pieces of the body it had handed over, what the client does on the items that
it had read whole. So each byte is walked over for what a client makes of the body up to it, and the server is run for
each pair of the two that there is.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from turnstile.conversation import Call, Message, Role, Text
from turnstile.errors import EngineError
from turnstile.exchange.prompts import prompt_for
from turnstile.exchange.rollouts import Opening, OpenRollout, Rollouts
from turnstile.exchange.world import World
from turnstile.generation import Delta, Draw, Generation
from turnstile.history.forest import Forest
from turnstile.parsing.formats import by_name
from turnstile.protocols import DIALECTS
from turnstile.protocols.base import Dialect
from turnstile.server import agents
from turnstile.server.agents import Desk, Limits
from turnstile.server.call_report import CallReport
from turnstile.server.visit import Reception, Visit
from turnstile.store import Reader
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.validate import validate

DIALECT = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
CALL = '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call>'
END = b"\n\n"
ANSWER = f"<think>\nI look.\n</think>\n\nLooking.\n{CALL}\n{CALL}<|im_end|>"


class Client(msgspec.Struct):
    """One client that reads so many pieces of its answer, and then is gone."""

    patience: int
    pieces: list[bytes] = []
    status: int = 0
    gone: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        if self.gone.is_set() or not message.get("body"):
            return
        self.pieces.append(message["body"])
        if len(self.pieces) == self.patience:
            self.gone.set()
            for _ in range(5):
                await asyncio.sleep(0)


def unheard(_: CallReport) -> None:
    """Nobody is told of calls."""


class Line:
    """A desk, and clients of one dialect in front of it."""

    def __init__(self, desk: Desk, dialect: Dialect, speaker: Any) -> None:
        self.desk = desk
        self.dialect = dialect
        self.speaker = speaker

    async def ask(self, rollout: OpenRollout, *history: Any, patience: int = 10**6) -> Client:
        client = Client(patience)
        await self.serve(rollout, self.speaker.body(*history, stream=True), client)
        return client

    async def serve(self, rollout: OpenRollout, body: bytes, client: Client) -> None:
        sent = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if sent:
                return sent.pop()
            await client.gone.wait()
            return {"type": "http.disconnect"}

        path, _, query = self.speaker.url(Urls(), True).partition("?")
        scope = {"type": "http", "method": "POST", "headers": [], "path": path, "query_string": query.encode()}
        visit = Visit(self.dialect, path, "")
        await self.desk.serve(Request(scope, receive), agents.Line(client.send, visit, self.desk.told), rollout, path)


class Urls:
    """A rollout whose address is nothing but the dialect's path."""

    openai_base_url = "/v1"
    anthropic_base_url = ""


@pytest.fixture
def thoughtful(world: World) -> World:
    return msgspec.structs.replace(world, answer_format=by_name("hermes"))


def views(body: list[bytes], speaker: Any) -> set[tuple[int, int]]:
    """What a client may have got: pieces handed over to it, and whole events that it read.

    Of the bytes at which a client understands the same of the same pieces, the last one stands for all.
    """
    whole = b"".join(body)
    ends = list(itertools.accumulate(map(len, body)))
    found: dict[tuple[int, str], int] = {}
    for at in range(1, len(whole)):
        if at in ends or whole[at : at + 1] == b"\n" or at == len(whole) - 1:
            pieces = next(count for count, end in enumerate(ends, 1) if at <= end)
            heard = speaker.heard(whole[:at], True)
            found[pieces, f"{heard.reasoning}|{heard.text}|{len(heard.calls)}|{len(heard.echo)}"] = whole[:at].count(
                END
            )
    return {(pieces, events) for (pieces, _), events in found.items()}


def read(client: Client, events: int) -> bytes:
    """What a client read if it was gone behind so many events."""
    whole = b"".join(client.pieces)
    return b"".join(event + END for event in whole.split(END)[:events])


@pytest.mark.parametrize("grace_s", [0.0, 2.0], ids=["given up", "answered all the same"])
@DIALECT
async def test_a_client_may_hang_up_at_any_byte(
    thoughtful: World, rollouts: Rollouts, fake: Any, dialect: Dialect, speaking: Any, tmp_path: Path, grace_s: float
) -> None:
    speaker = speaking.SPEAKERS[dialect.name]
    names = (f"r{at}" for at in itertools.count())
    limits = Limits(max_body_bytes=1 << 20, keep_alive_s=60, grace_s=grace_s, finish_patience_s=1)
    async with asyncio.TaskGroup() as tasks:
        line = Line(Desk(thoughtful, rollouts, tasks, limits, Reception(unheard)), dialect, speaker)
        recorded = await rollouts.create(Opening(next(names)), "")
        fake.script(fake.ids(ANSWER))
        body = (await line.ask(recorded, "go")).pieces
        places = sorted(views(body, speaker))
        resumed = 0
        for pieces, events in places:
            rollout = await rollouts.create(Opening(next(names)), "")
            client = await hung_up_on(line, rollout, fake, pieces)
            kept = speaker.heard(read(client, events), True)
            if kept.echo:
                await gone_on_from(line, rollout, fake, kept, speaking)
            await asked_again(line, rollout, fake)
            check(rollout, tmp_path)
            resumed += any(node.is_resumed for node in rollout.forest.nodes)
        assert len(places) >= 7
        assert (resumed >= 3) is (grace_s == 0.0)


@pytest.mark.parametrize("cut", ["CUT_BODY", "CUT_CLEAN"], ids=["reset", "clean end"])
async def test_an_engine_may_end_its_answer_at_any_byte(
    world: World, rollouts: Rollouts, fake: Any, fakes: Any, cut: str
) -> None:
    rollout = await rollouts.create(Opening("r"), "")
    asked = Call("openai.chat", "m", (Message(Role.USER, (Text("go"),)),))
    prompt = (await prompt_for(world, rollout.forest, rollout.opened, asked)).prompt
    draw = Draw(stop_ids=world.served.stop_ids, max_tokens=20, seed=1)
    answer_ids = fake.ids("One, two, three.<|im_end|>")
    fake.slow_s = 0.0
    told: list[list[int]] = []

    async def emit(delta: Delta) -> None:
        told[-1] += delta.ids_S.tolist()

    async def sample() -> Generation:
        fake.forget()
        fake.script(answer_ids)
        fake.faults.extend([fakes.Fault.SLOW, fakes.Fault[cut]])
        told.append([])
        return await world.engine.generate(prompt, draw, emit)

    fake.cut_bytes = 1 << 20
    assert (await sample()).ids_S.tolist() == answer_ids
    for cut_bytes in range(fake.last_length):
        fake.cut_bytes = cut_bytes
        with pytest.raises(EngineError) as caught:
            await sample()
        assert (caught.value.code, told[-1]) == (
            "engine_unreachable" if cut == "CUT_BODY" else "engine_broken",
            answer_ids[:2],
        )


async def hung_up_on(line: Line, rollout: OpenRollout, fake: Any, pieces: int) -> Client:
    """A client leaves, and its call ends: with an answer that nobody took, or by nobody's waiting for it."""
    fake.script(fake.ids(ANSWER))
    client = await line.ask(rollout, "go", patience=pieces)
    for flight in rollout.repeats.running:
        assert flight.task is not None
        await asyncio.wait([flight.task])
    fake.forget()
    for _ in range(30_000):
        (state,) = rollout.forest.calls.values()
        if state.failed or state.undelivered:
            return client
        await asyncio.sleep(0.001)
    raise AssertionError("its end was never recorded")


async def gone_on_from(line: Line, rollout: OpenRollout, fake: Any, kept: Any, speaking: Any) -> None:
    """The client sends what it has back, and goes on."""
    (state,) = rollout.forest.calls.values()
    fake.script(fake.ids("Found.<|im_end|>"))
    results = [speaking.Result(call, "b") for call in kept.calls]
    client = await line.ask(rollout, "go", kept, *results, "more")
    assert line.speaker.heard(b"".join(client.pieces), True).text == "Found."
    started = list(rollout.forest.calls.values())[-1].started
    ends = [item.end_S for partial in (state.failed.partials if state.failed else ()) for item in partial.items]
    if started.parent is not None and state.failed:
        assert started.held_length in [state.started.held_length + len(state.started.added_A) + end for end in ends]
    if line.speaker.keeps_items and kept.calls and state.failed:
        assert started.parent is not None


async def asked_again(line: Line, rollout: OpenRollout, fake: Any) -> None:
    """The client sends its first request again."""
    (state, *_) = rollout.forest.calls.values()
    before = rollout.forest.call_count
    fake.script(fake.ids("Again.<|im_end|>"))
    client = await line.ask(rollout, "go")
    fake.forget()
    text = line.speaker.heard(b"".join(client.pieces), True).text.strip()
    if state.failed:
        assert (text, rollout.forest.call_count) == ("Again.", before + 1)
    else:
        assert (text, rollout.forest.call_count) == ("Looking.", before)


def check(rollout: OpenRollout, folder: Path) -> None:
    """Nothing is lost, trained twice, or taken for more than it is."""
    with Reader.open(folder) as reader:
        assert Forest.of(reader.records(rollout.opened.rollout_id)) == rollout.forest
    exported = assemble(rollout.forest)
    assert [str(found) for found in validate(exported) if found.code.startswith("E")] == []
    for sequence in exported.sequences:
        for segment, _ in sequence.sampled_segments():
            call = exported.calls[segment.call]
            state = rollout.forest.calls[call.call_id]
            if segment.trainable and state.committed is None:
                ends = [item.end_S for item in state.failed.partials[0].items]
                assert segment.end - segment.start in ends
                assert call.finish == "abort"


async def test_a_client_that_comes_and_leaves_within_the_grace_of_another_has_a_grace_of_its_own(
    world: World, rollouts: Rollouts
) -> None:
    rollout = await rollouts.create(Opening("r"), "")
    limits = Limits(max_body_bytes=1 << 20, keep_alive_s=60, grace_s=0.05, finish_patience_s=1)
    async with asyncio.TaskGroup() as tasks:
        desk = Desk(world, rollouts, tasks, limits, Reception(unheard))
        flight = rollout.take_off(Call("openai.chat", "m", (Message(Role.USER, (Text("go"),)),)), "d")
        flight.has_place = True
        flight.task = tasks.create_task(asyncio.sleep(3600))
        giving_up = tasks.create_task(desk._give_up(flight))
        await asyncio.sleep(0)
        flight.join().leave()
        await giving_up
        assert flight.task.cancelling() == 0
        await desk._give_up(flight)
        assert flight.task.cancelling() == 1
