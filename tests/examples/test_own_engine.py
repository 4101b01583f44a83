"""The engine in one file that the documentation tells people to start from."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from turnstile.engines import Engine, TokenServer, connect
from turnstile.exchange.checks import verify
from turnstile.generation import Draw, Finish, Generation, Head, Prompt, Root
from turnstile.reasons import RootReason
from turnstile.templates.tokenizer import Tokenizer
from turnstile.tokens import IdRun

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_engine.py"


@pytest.fixture(scope="module")
def folder(family: Callable[[str], Path]) -> Path:
    return family("qwen3")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    spec = importlib.util.spec_from_file_location("own_engine", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    # A quarter of a million logits a token in plain Python would take a while.
    example.logits_of = lambda ids, size: SMALL[ids[-1] % 2] + [-50.0] * (size - 4)
    with example.server(folder, 0) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


SMALL = ([0.0, 1.0, 0.5, 0.0], [2.0, 0.0, 0.0, 1.0])


async def sampled(engine: Engine, ids: list[int], draw: Draw, vocabulary: Any) -> Generation:
    head = Head("fingerprint", "m", "tokenizer", 0, "template", "{}", ())
    prompt = Prompt(head, None, IdRun(), IdRun.of(ids), (), Root(RootReason.FIRST_CALL))

    async def emit(_delta: Any) -> None:
        pass

    generation = await engine.generate(prompt, draw, emit)
    verdict = verify(prompt, draw, generation, vocabulary)
    assert (verdict.incomplete, verdict.notes) == ((), ())
    return generation


async def test_the_engine_in_one_file_gives_answers_that_lack_nothing(url: str, folder: Path) -> None:
    tokenizer = Tokenizer.from_json((folder / "tokenizer.json").read_text(encoding="utf-8"))
    server = await connect(url)
    assert isinstance(server, TokenServer)
    assert server.tokenizer_sha256 == tokenizer.sha256
    assert server.capabilities.echoes_prompt_ids == "ids"
    engine = server.speaking(tokenizer, seeds=lambda: 1)
    found = await sampled(engine, [5, 6], Draw(temperature=0.7, max_tokens=6, stop_ids=frozenset({9})), tokenizer)
    assert (len(found.ids_S), found.finish, found.logprobs_temperature) == (6, Finish.LENGTH, 0.7)
    assert [each.label for each in found.policy_spans] == ["0"]
    greedy = await sampled(engine, [5, 6], Draw(temperature=0.0, stop_ids=frozenset({1})), tokenizer)
    assert (greedy.ids_S.tolist(), greedy.finish) == ([1], Finish.STOP)
    await engine.close()


def test_it_is_as_short_as_the_documentation_says() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 130
