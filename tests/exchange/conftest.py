"""Rollouts over a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from turnstile.engines import LlamaServer
from turnstile.exchange.images import Gallery
from turnstile.exchange.policy_log import PolicyLog, PolicyState, Standing
from turnstile.exchange.rollouts import Policies, Rollouts
from turnstile.exchange.world import World
from turnstile.parsing.formats import detect
from turnstile.server.local_files import read_model_folder
from turnstile.store import Blobs, Journal, Reader
from turnstile.templates.facts import serve
from turnstile.templates.files import ModelFiles
from turnstile.templates.served import Served
from turnstile.templates.tokenizer import Tokenizer

DEFAULTS = Policies()
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> Callable[[], datetime]:
    """A second passes at each look."""
    looks = iter(range(10**6))
    return lambda: START + timedelta(seconds=next(looks))


@pytest.fixture
def reopen(tmp_path: Path, clock: Callable[[], datetime]) -> Iterator[Callable[..., Rollouts]]:
    """Rollouts as a process that starts on the store finds them; the process before is gone."""
    open_now: list[Journal | Reader] = []

    def close() -> None:
        for each in open_now:
            each.close()
        open_now.clear()

    def reopen(policies: Policies = DEFAULTS) -> Rollouts:
        close()
        journal = Journal.open(tmp_path)
        reader = Reader.open(tmp_path)
        open_now.extend((journal, reader))
        return Rollouts(journal, reader, clock, policies)

    yield reopen
    close()


@pytest.fixture
def rollouts(reopen: Callable[[], Rollouts]) -> Rollouts:
    return reopen()


@pytest.fixture(scope="session")
def sighted_files(family: Callable[[str], Path]) -> tuple[ModelFiles, Served]:
    """Qwen2.5-VL, read once."""
    files = read_model_folder(family("qwen2.5-vl"))
    return files, serve(files, model="m", stop_ids=frozenset())


@pytest.fixture
async def sighted(
    seeing: Any, sighted_files: tuple[ModelFiles, Served], clock: Callable[[], datetime], tmp_path: Path
) -> World:
    """The real parts of Qwen2.5-VL around an engine at the seam that is shown images; it is `sighted.engine`."""
    files, served = sighted_files
    names = (f"call{at}" for at in count())
    return World(
        served=served,
        answer_format=detect(files.chat_template),
        engine=seeing.SeeingEngine(),
        now=clock,
        mint_call_id=lambda: next(names),
        draw_seed=lambda below: 11 % below,
        policy=PolicyLog(state=PolicyState({"": Standing(5)})),
        off_loop=lambda work: asyncio.to_thread(work),
        gallery=Gallery(Blobs(tmp_path)),
    )


@pytest.fixture
async def fake(fakes: Any, wires: Any, tools_folder: Path, tokenizers_of: Callable[[Path], Tokenizer]) -> Any:
    """A fake llama.cpp that speaks SmolLM2's tokens, in this event loop."""
    tokenizer = tokenizers_of(tools_folder)
    special = frozenset(token.id for token in tokenizer.added if token.special)
    server = fakes.LlamaFake(wires.Rows(tokenizer), special=special, eos=frozenset(tokenizer.encode("<|im_end|>")))
    async with server.serving() as url:
        server.url = url
        server.ids = lambda text: tokenizer.encode(text).tolist()
        yield server


@pytest.fixture
async def world(fake: Any, tools_folder: Path, clock: Callable[[], datetime]) -> AsyncIterator[World]:
    """The real parts around the fake engine."""
    files = read_model_folder(tools_folder)
    served = serve(files, model="m", stop_ids=frozenset())
    server = await LlamaServer.open(fake.url)
    names = (f"call{at}" for at in count())
    yield World(
        served=served,
        answer_format=detect(files.chat_template),
        engine=server.speaking(served.tokenizer),
        now=clock,
        mint_call_id=lambda: next(names),
        draw_seed=lambda below: 11 % below,
        policy=PolicyLog(state=PolicyState({"": Standing(5)})),
        off_loop=lambda work: asyncio.to_thread(work),
    )
    await server.close()
