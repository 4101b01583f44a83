"""What is found out about a vLLM server at start."""

from __future__ import annotations

import pytest

from turnstile.engines import VllmServer
from turnstile.engines.vllm_probe import Opened
from turnstile.errors import EngineError
from turnstile.generation import LogprobsMode


@pytest.fixture
def found(vllm_fakes, vocabulary):
    """What is found out about a server that was started in some way."""

    async def _found(**settings):
        fake = vllm_fakes.VllmFake(vocabulary.rows, frozenset({0, 1}), frozenset({1}), **settings)
        fake.encode = vocabulary.spell
        async with fake.serving() as url:
            server = await VllmServer.open(url)
            await server.close()
            return server.found

    return _found


async def test_a_server_with_all_doors_open_has_them_all(found):
    seen = await found(placeholder_id=0)
    assert (seen.generate, seen.completions, seen.chat) == (Opened.HONOURED,) * 3
    assert (seen.version, seen.entry.id, seen.entry.max_model_len) == ("0.32.0", "fake", 4096)
    assert seen.measured is LogprobsMode.PROCESSED
    assert seen.max_top_logprobs == 20
    assert all(
        (seen.stop_in_ids, seen.constrains, seen.parses, seen.derenders, seen.has_spans, seen.has_weight_route,
         seen.images)
    )  # fmt: skip


async def test_without_scale_out_and_dev_mode_what_needs_them_is_not_there(found):
    seen = await found(scale_out=False, dev_mode=False, placeholder_id=0)
    assert (seen.generate, seen.completions) == (Opened.CLOSED, Opened.HONOURED)
    assert not any((seen.derenders, seen.has_spans, seen.has_weight_route, seen.images))
    assert seen.measured is LogprobsMode.PROCESSED


async def test_a_chat_that_ignores_ids_is_found_out(found):
    assert (await found(takes_ids_in_chat=False)).chat is Opened.IGNORED


async def test_raw_numbers_are_told_by_measurement(found):
    assert (await found(processed=False)).measured is LogprobsMode.RAW


async def test_the_most_alternatives_are_what_the_server_gives(found):
    seen = await found(max_logprobs=3)
    assert seen.max_top_logprobs == 3


async def test_a_grammar_that_waits_for_the_end_of_the_reasoning_is_found_out(found):
    assert not (await found(constrains=False)).constrains


async def test_a_server_without_a_parser_refuses_tools(found):
    assert not (await found(has_parsers=False)).parses


async def test_a_model_that_sees_nothing_is_found_out(found):
    assert not (await found(placeholder_id=None)).images


async def test_logits_are_refused(vllm_fakes, vocabulary):
    fake = vllm_fakes.VllmFake(vocabulary.rows, eos=frozenset({1}))
    fake.encode = vocabulary.spell
    fake.logprob = lambda token, temperature=1.0: 1e-4 + fake.logit(token) / 1000
    async with fake.serving() as url:
        with pytest.raises(EngineError, match="--logprobs-mode processed_logprobs"):
            await VllmServer.open(url)


async def test_a_server_that_does_not_know_ids_is_refused(vllm_fakes, vocabulary):
    fake = vllm_fakes.VllmFake(vocabulary.rows, eos=frozenset({1}), returns_ids=False, scale_out=False)
    async with fake.serving() as url:
        with pytest.raises(EngineError, match="takes token ids neither at"):
            await VllmServer.open(url)
