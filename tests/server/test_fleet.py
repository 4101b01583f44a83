"""From addresses to one pool: which engines may serve together, and what becomes of one that is down at start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from turnstile.engines import EngineServer, LlamaServer
from turnstile.engines.pool import nobody_told
from turnstile.errors import CallerError, EngineError
from turnstile.server.fleet import Fleet, engine_names
from turnstile.server.local_files import read_model_folder
from turnstile.templates.facts import serve
from turnstile.templates.tokenizer import Tokenizer

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_an_engine_is_called_by_its_host_port_and_path() -> None:
    targets = ("http://10.0.0.1:8000", "https://Host.example/a/", "http://[::1]:9", "http://h.example:1")
    assert engine_names(targets) == ("10.0.0.1:8000", "host.example:443/a", "[::1]:9", "h.example:1")
    assert engine_names(("embedded",)) == ("embedded",)


@pytest.mark.parametrize(
    ("targets", "word"),
    [
        (("embedded", "http://h:1"), "stands alone"),
        (("http://h:1", "http://h:1/"), "named twice"),
        (("http://h:1", "nonsense"), "neither a URL"),
    ],
)
def test_addresses_that_make_no_fleet_are_refused(targets: tuple[str, ...], word: str) -> None:
    with pytest.raises(CallerError, match=word) as refused:
        engine_names(targets)
    assert refused.value.code == "engine_address"


class Room:
    """Fake llama.cpp servers by name."""

    def __init__(self, make: Callable[[], Any], stack: AsyncExitStack) -> None:
        self._make = make
        self._stack = stack

    async def start(self, **changes: Any) -> str:
        fake = self._make()
        for name, value in changes.items():
            setattr(fake, name, value)
        return await self._stack.enter_async_context(fake.serving())


@pytest.fixture
async def room(fakes: Any, wires: Any, tools_folder: Path, tokenizers_of: Callable[[Path], Tokenizer]) -> AsyncIterator[Room]:  # fmt: skip # noqa: E501
    tokenizer = tokenizers_of(tools_folder)
    special = frozenset(token.id for token in tokenizer.added if token.special)
    async with AsyncExitStack() as stack:
        yield Room(lambda: fakes.LlamaFake(wires.Rows(tokenizer), special=special, model="m"), stack)


@pytest.fixture
def served(tools_folder: Path) -> Any:
    return serve(read_model_folder(tools_folder), model="m", stop_ids=frozenset())


async def ask(target: str) -> EngineServer:
    return await LlamaServer.open(target)


NOBODY = "http://127.0.0.1:9"


async def test_engines_that_serve_the_same_make_one_pool(room: Room, served: Any) -> None:
    fleet = await Fleet.connect((await room.start(slots=2), await room.start(slots=3)), ask)
    await fleet.check(served, NOW)
    pool = fleet.pool(served, lambda: NOW, nobody_told)
    assert (tuple(pool.members), fleet.notices) == (fleet.names, ())
    assert (pool.capabilities.concurrency, [each.is_up for each in pool.figures()]) == (5, [True, True])
    await pool.close()


async def test_one_that_is_down_at_start_is_told_of_and_left_out_until_it_answers(room: Room, served: Any) -> None:
    fleet = await Fleet.connect((NOBODY, await room.start()), ask)
    await fleet.check(served, NOW)
    pool = fleet.pool(served, lambda: NOW, nobody_told)
    (notice,) = fleet.notices
    assert notice.startswith("The engine 127.0.0.1:9 is left out until it answers: No engine answers at")
    assert [each.is_up for each in pool.figures()] == [False, True]
    assert {pool.seat(f"r{at}", "").name for at in range(20)} == {fleet.names[1]}
    await pool.close()


async def test_where_all_are_down_the_start_fails_with_what_is_wrong_with_the_first() -> None:
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:9 ") as failed:
        await Fleet.connect((NOBODY, "http://127.0.0.1:7"), ask)
    assert failed.value.code == "engine_unreachable"


async def test_an_address_without_an_engine_fails_the_start_also_beside_one_with(room: Room) -> None:
    async def foreign(target: str) -> EngineServer:
        if target == NOBODY:
            raise CallerError("That is no engine", "Give another", code="engine_address")
        return await ask(target)

    with pytest.raises(CallerError):
        await Fleet.connect((await room.start(), NOBODY), foreign)


async def test_engines_that_differ_are_refused_with_each_difference(room: Room, served: Any) -> None:
    fleet = await Fleet.connect((await room.start(), await room.start(model="n", chat_template="x")), ask)
    with pytest.raises(CallerError) as refused:
        await fleet.check(served, NOW)
    await fleet.close()
    first, second = fleet.names
    assert (refused.value.code, refused.value.problem) == (
        "engines_differ",
        f'The engine {second} does not serve what {first} serves: models: ["n"], not ["m"]; chat_template: "x", not ""',
    )


async def test_one_that_comes_back_as_something_else_is_not_taken_again(room: Room, served: Any) -> None:
    urls = [await room.start(), await room.start(), await room.start(model="n")]

    async def restarted(target: str) -> EngineServer:
        return await ask(urls[2] if target == urls[1] and back else target)

    back = False
    fleet = await Fleet.connect(urls[:2], restarted)
    pool = fleet.pool(served, lambda: NOW, nobody_told)
    back, member = True, pool.members[fleet.names[1]]
    member.problem = "It was down."
    await member.look()
    assert not member.is_up
    assert 'models: ["n"], not ["m"]' in member.problem
    await pool.close()
