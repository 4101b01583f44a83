"""Several engines as one: who gets which call, and what becomes of an engine that is down."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstile.engines import LlamaServer
from turnstile.engines.base import WINDOW, Capabilities, Engine, Present
from turnstile.engines.pool import EnginePool, Member, Pace, differences, seat_of
from turnstile.errors import EngineError, StoreError
from turnstile.generation import Delta, Draw, Prompt, Root
from turnstile.reasons import RootReason
from turnstile.templates.tokenizer import Tokenizer
from turnstile.tokens import NO_IDS

CAPABILITIES = Capabilities("llamacpp", "b1", ("m",), 100, 2, 10, "", frozenset(), frozenset(), 5, "count")


class Fleet:
    """Two llama.cpp servers that are only wire, each of which can be stopped and started again at its port."""

    def __init__(self, make: Callable[[], Any], tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.make = make
        self.fakes: dict[str, Any] = {}
        self.returned: list[str] = []
        self._up: dict[str, AsyncExitStack] = {}

    async def start(self, name: str, slots: int = 4) -> None:
        port = self.fakes[name].port if name in self.fakes else 0
        self.fakes[name] = fake = self.make()
        fake.slots = slots
        fake.answer = lambda _: self.tokenizer.encode(f"I am {name}.<|im_end|>").tolist()
        self._up[name] = AsyncExitStack()
        await self._up[name].enter_async_context(fake.serving(port))

    async def stop(self, name: str) -> None:
        await self._up.pop(name).aclose()

    async def close(self) -> None:
        for name in list(self._up):
            await self.stop(name)

    async def opened(self, name: str) -> Engine:
        server = await LlamaServer.open(f"http://127.0.0.1:{self.fakes[name].port}")
        return server.speaking(self.tokenizer)

    async def member(self, name: str) -> Member:
        async def back(which: str) -> None:
            self.returned.append(which)

        return Member(name, await self.opened(name), lambda: self.opened(name), back)

    async def said(self, pool: EnginePool, rollout_id: str, last: str = "") -> tuple[str, str]:
        seat = pool.seat(rollout_id, last)
        async with seat.open() as engine:
            generation = await engine.generate(self.prompt(), Draw(affinity=rollout_id, **self.ending()), nobody)
        return seat.name, self.tokenizer.decode(generation.ids_S.slice(0, len(generation.ids_S) - 1))

    def prompt(self) -> Prompt:
        return Prompt(None, None, NO_IDS, self.tokenizer.encode("Hi"), (), Root(RootReason.FIRST_CALL))  # type: ignore[arg-type]

    def ending(self) -> dict[str, Any]:
        return {"max_tokens": 40, "stop_ids": frozenset(self.tokenizer.encode("<|im_end|>"))}


async def nobody(_: Delta) -> None:
    """Nobody listens."""


@pytest.fixture
async def fleet(fakes: Any, wires: Any, tools_folder: Path, tokenizers_of: Callable[[Path], Tokenizer]) -> AsyncIterator[Fleet]:  # fmt: skip # noqa: E501
    tokenizer = tokenizers_of(tools_folder)
    special = frozenset(token.id for token in tokenizer.added if token.special)
    eos = frozenset(tokenizer.encode("<|im_end|>"))
    made = Fleet(lambda: fakes.LlamaFake(wires.Rows(tokenizer), special=special, eos=eos), tokenizer)
    await made.start("a")
    await made.start("b")
    yield made
    await made.close()


@pytest.fixture
async def pool(fleet: Fleet) -> AsyncIterator[EnginePool]:
    made = EnginePool([await fleet.member("a"), await fleet.member("b")])
    yield made
    await made.close()


async def test_a_rollout_stays_where_its_last_call_went_and_begins_by_the_hash_of_its_id(
    fleet: Fleet, pool: EnginePool
) -> None:
    first = {name: (await fleet.said(pool, name))[0] for name in ("r1", "r2", "r3", "r4", "r5", "r6")}
    assert set(first.values()) == {"a", "b"}
    assert {name: (await fleet.said(pool, name))[0] for name in first} == first
    other = {"a": "b", "b": "a"}
    assert [pool.seat(name, other[there]).name for name, there in first.items()] == [other[t] for t in first.values()]
    assert [pool.seat(name, there).left for name, there in first.items()] == [""] * 6


def up(name: str, slots: int | None) -> Member:
    class Alone:
        capabilities = msgspec.structs.replace(CAPABILITIES, concurrency=slots)

    return Member(name, Alone())  # type: ignore[arg-type]


@pytest.mark.parametrize(("slots", "share"), [((1, 3), 0.75), ((4, 4), 0.5), ((None, 64), 0.5)])
def test_each_engine_gets_the_share_of_rollouts_that_its_capacity_is(
    slots: tuple[int | None, int | None], share: float
) -> None:
    pool = EnginePool([up("a", slots[0]), up("b", slots[1])])
    counts = Counter(pool.seat(f"rollout-{at}", "").name for at in range(4000))
    assert counts["b"] / 4000 == pytest.approx(share, abs=0.03)


def test_only_rollouts_of_an_engine_that_goes_move() -> None:
    three = EnginePool([up(name, 2) for name in "abc"])
    two = EnginePool([up(name, 2) for name in "ab"])
    before = {f"r{at}": three.seat(f"r{at}", "").name for at in range(500)}
    moved = {name for name, there in before.items() if two.seat(name, "").name != there}
    assert moved == {name for name, there in before.items() if there == "c"}


async def test_when_an_engine_dies_its_rollouts_move_at_their_next_call_and_the_seat_says_why(
    fleet: Fleet, pool: EnginePool
) -> None:
    await fleet.stop("a")
    with pytest.raises(EngineError) as failed:
        await fleet.said(pool, "r", last="a")
    assert failed.value.code == "engine_unreachable"
    seat = pool.seat("r", "a")
    assert (seat.name, seat.left, pool.moves) == ("b", "a", 1)
    assert seat.why.startswith("No engine answers at http://127.0.0.1:")
    assert await fleet.said(pool, "r", last="a") == ("b", "I am b.")
    figures = {each.name: each for each in pool.figures()}
    assert (figures["a"].is_up, figures["a"].failures, figures["b"].is_up) == (False, 1, True)


async def test_an_engine_that_is_back_is_found_told_of_and_given_calls_again(fleet: Fleet, pool: EnginePool) -> None:
    await fleet.stop("a")
    await pool.members["a"].look()
    assert not pool.members["a"].is_up
    await fleet.start("a", slots=9)
    await pool.members["a"].look()
    assert (fleet.returned, pool.members["a"].capacity, pool.members["a"].returns) == (["a"], 9, 1)
    assert await fleet.said(pool, "r", last="a") == ("a", "I am a.")


async def test_an_engine_that_comes_back_serving_something_else_is_left_out_and_says_so(fleet: Fleet) -> None:
    async def refused() -> Engine:
        raise EngineError("The engine serves another model", "Start it as it was", code="engines_differ")

    member = Member("a", await fleet.opened("a"), refused)
    pool = EnginePool([member, await fleet.member("b")])
    await fleet.stop("a")
    await member.look()
    await fleet.start("a")
    await member.look()
    assert (member.is_up, member.problem) == (False, "The engine serves another model. Start it as it was.")
    assert pool.seat("r", "a").name == "b"
    await pool.close()


async def test_where_all_are_down_a_call_looks_whether_its_engine_is_back_before_it_fails(
    fleet: Fleet, pool: EnginePool
) -> None:
    for name in ("a", "b"):
        await fleet.stop(name)
        await pool.members[name].look()
    assert (await pool.health()).count("No engine answers") == 2
    with pytest.raises(EngineError) as failed:
        await fleet.said(pool, "r", last="a")
    assert (failed.value.code, failed.value.status) == ("engine_unreachable", 503)
    await fleet.start("a")
    assert await fleet.said(pool, "r", last="a") == ("a", "I am a.")
    assert (fleet.returned, pool.moves, await pool.health()) == (["a"], 0, "")


async def test_a_failure_that_is_not_the_engines_death_moves_nobody(fleet: Fleet, pool: EnginePool, fakes: Any) -> None:
    fleet.fakes["a"].faults.append(fakes.Fault.ERROR_500)
    with pytest.raises(EngineError):
        await fleet.said(pool, "r", last="a")
    assert (pool.seat("r", "a").name, pool.members["a"].failures) == ("a", 1)


async def test_an_engine_that_is_down_is_looked_for_ever_more_rarely(fleet: Fleet) -> None:
    member = await fleet.member("a")
    pauses = [member.pause_s(Pace())]
    await fleet.stop("a")
    for _ in range(7):
        await member.look()
        pauses.append(member.pause_s(Pace()))
    assert pauses == [5.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    await member.close()


async def test_the_watch_finds_that_an_engine_died_and_that_it_is_back(fleet: Fleet, pool: EnginePool) -> None:
    async def until(is_up: bool) -> None:
        while pool.members["a"].is_up is not is_up:  # noqa: ASYNC110 - what is waited for is found by looking
            await asyncio.sleep(0.01)

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(pool.watch(Pace(0.02, 0.02, 0.02)))
        await fleet.stop("a")
        await until(False)
        await fleet.start("a")
        await until(True)
        watching.cancel()
    assert fleet.returned == ["a"]


class Mute:
    """An engine that is too busy to say how it is."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.capabilities = engine.capabilities
        self.generate = engine.generate
        self.close = engine.close

    async def health(self) -> str:
        await asyncio.Event().wait()
        return "never said"


async def test_an_engine_that_is_too_busy_to_say_how_it_is_is_not_down(fleet: Fleet) -> None:
    one, two = Member("a", Mute(await fleet.opened("a"))), await fleet.member("b")
    one.look_patience_s = 0.05
    pool = EnginePool((one, two))
    for _ in range(2):
        await one.look()
        assert (one.is_up, one.problem) == (True, "")
    assert await fleet.said(pool, "r", "a") == ("a", "I am a.")
    await one.look()
    assert one.problem == "The engine a did not say in 0.05 s how it is."
    assert await fleet.said(pool, "r", "a") == ("b", "I am b.")
    await pool.close()


async def test_where_no_other_is_up_one_that_does_not_say_how_it_is_is_tried_all_the_same(fleet: Fleet) -> None:
    async def reopen() -> Engine:
        return await fleet.opened("a")

    one = Member("a", Mute(await fleet.opened("a")), reopen)
    one.look_patience_s = 0.05
    pool = EnginePool((one,))
    for _ in range(4):
        await one.look()
    assert not one.is_up
    assert await fleet.said(pool, "r", "a") == ("a", "I am a.")
    await pool.close()


async def test_requests_that_run_are_counted(fleet: Fleet, pool: EnginePool) -> None:
    async with pool.members["a"].open(), pool.members["a"].open():
        assert {each.name: each.running for each in pool.figures()} == {"a": 2, "b": 0}
    assert {each.name: (each.running, each.capacity) for each in pool.figures()} == {"a": (0, 4), "b": (0, 4)}


async def test_as_one_engine_the_pool_samples_where_the_affinity_says(fleet: Fleet, pool: EnginePool) -> None:
    draw = Draw(affinity="r", **fleet.ending())
    generation = await pool.generate(fleet.prompt(), draw, nobody)
    assert fleet.tokenizer.decode(generation.ids_S).startswith(f"I am {pool.seat('r', '').name}.")


def together(*all_of_them: Capabilities) -> Capabilities:
    """What a pool says of engines that can this."""

    def member(name: str, can: Capabilities) -> Member:
        class Alone:
            capabilities = can

        return Member(name, Alone())  # type: ignore[arg-type]

    return EnginePool([member(str(number), can) for number, can in enumerate(all_of_them)]).capabilities


def test_together_they_have_the_capacity_of_all_and_the_window_of_the_shortest() -> None:
    long = msgspec.structs.replace(CAPABILITIES, context_length=200, concurrency=3)
    assert together(CAPABILITIES, long) == msgspec.structs.replace(CAPABILITIES, context_length=100, concurrency=5)


def test_an_engine_that_never_answered_has_no_part_in_what_all_can_do_and_a_pool_needs_one_that_did() -> None:
    down = Member("b", None, problem="down")
    assert EnginePool([up("a", 2), down]).capabilities == CAPABILITIES
    with pytest.raises(ValueError, match="no engine"):
        EnginePool([down])


def test_each_difference_between_two_engines_is_named() -> None:
    other = msgspec.structs.replace(
        CAPABILITIES, version="b2", chat_template="x" * 100, context_length=7, concurrency=9
    )
    assert differences(CAPABILITIES, CAPABILITIES) == ()
    assert differences(CAPABILITIES, other) == (
        'version: "b2", not "b1"',
        f'chat_template: "{"x" * 79}... (102 characters), not ""',
    )


def test_engines_may_show_windows_that_differ_and_the_pool_shows_none_of_them() -> None:
    echo = Present("prompt ids echoed", "compared in each answer")
    short, long = (
        msgspec.structs.replace(
            CAPABILITIES, context_length=length, present=(echo, Present(WINDOW, f"{length} tokens"))
        )
        for length in (100, 200)
    )
    assert differences(long, short) == ()
    assert together(long, short) == msgspec.structs.replace(CAPABILITIES, present=(echo,), concurrency=4)
    assert together(short, short).present == short.present


async def test_an_engine_that_stands_alone_has_no_name(fleet: Fleet) -> None:
    engine = await fleet.opened("a")
    seat = seat_of(engine, "r", "")
    async with seat.open() as given:
        assert (seat.name, given) == ("", engine)
    await engine.close()


async def test_an_engine_on_which_requests_still_run_was_not_started_again(fleet: Fleet, pool: EnginePool) -> None:
    member = pool.members["a"]
    async with member.open() as engine:
        member.problem = "It did not say how it is."
        await member.look()
        async with member.open() as again:
            assert (member.is_up, again, fleet.returned, member.returns) == (True, engine, [], 1)


async def test_an_engine_is_back_only_when_all_know_it(fleet: Fleet) -> None:
    async def full(_: str) -> None:
        raise StoreError("The disk is full", "Make room")

    member = Member("a", await fleet.opened("a"), lambda: fleet.opened("a"), full, problem="It was down.")
    await member.look()
    assert (member.is_up, member.problem) == (False, "The disk is full. Make room.")
    await member.close()
