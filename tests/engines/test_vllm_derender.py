"""vLLM's parsers, asked on their own."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from turnstile.conversation import ToolMode
from turnstile.engines.vllm_derender import Derender
from turnstile.engines.wire import Wire
from turnstile.errors import EngineError


@pytest.fixture
async def wire(vllm_fake):
    wire = Wire.open(vllm_fake.url)
    yield wire
    await wire.close()


async def read_all(wire, prompt, ids):
    reader = Derender(wire, "fake", msgspec.structs.replace(prompt([2]), read_with=ToolMode.AUTO), b"2")
    told = [await reader.read([each], "stop" if at == len(ids) - 1 else "") for at, each in enumerate(ids)]
    return [None if each is None else each.content for each in told]


async def test_ids_are_gathered_and_all_are_read_in_the_end(wire, prompt, vocabulary):
    words = await read_all(wire, prompt, [*vocabulary.spell("twelve bytes"), 1])
    assert words == [*[None] * 7, "twelve b", *[None] * 4, "ytes"]


async def test_the_longer_an_answer_the_more_is_gathered(wire, prompt, vocabulary):
    words = await read_all(wire, prompt, vocabulary.spell("a" * 300))
    asked = [at for at, each in enumerate(words) if each is not None]
    gaps = [after - before for before, after in itertools.pairwise(asked)]
    assert len(asked) < 30
    assert max(gaps[:-1]) > 20


async def test_a_route_that_is_closed_is_the_engine_s_error(vllm_fakes, prompt, vocabulary):
    fake = vllm_fakes.VllmFake(vocabulary.rows, scale_out=False)
    async with fake.serving() as url:
        wire = Wire.open(url)
        with pytest.raises(EngineError, match="Scale-out endpoints are disabled"):
            await read_all(wire, prompt, [5])
        await wire.close()
