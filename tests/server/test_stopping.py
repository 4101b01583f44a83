"""A server that is told to stop while a call runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from turnstile.config import Settings
from turnstile.engines.smollm import say_nothing
from turnstile.server.start import listening


@pytest.fixture
def stopped(wired: Callable[..., Any], tools_folder: Path, tmp_path: Path) -> Callable[..., Any]:
    """Stops a server while the engine is silent; answers what the client got."""

    async def stopped(release_after_s: float, **fields: Any) -> httpx.Response:
        fake = wired().fake
        engine = f"http://127.0.0.1:{fake.port}"
        settings = Settings(engine=engine, tokenizer=tools_folder, store=tmp_path, port=0, keep_alive_s=0.1)
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
        fake.held, began = True, fake.begun
        async with (
            httpx.AsyncClient(timeout=60, trust_env=False) as http,
            listening(settings, say_nothing) as (running, server, bound),
            asyncio.TaskGroup() as tasks,
        ):
            serving = tasks.create_task(server.serve(sockets=[bound]))
            answer = tasks.create_task(http.post(f"{running.url}/r/r/v1/chat/completions", json=body))
            async with asyncio.timeout(60):
                while fake.begun == began:  # noqa: ASYNC110 - told by another thread
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            server.should_exit = True
            await asyncio.sleep(release_after_s)
            fake.held = release_after_s == 0
            told = await answer
            await serving
        return told

    return stopped


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_is_told_in_its_dialect_that_its_call_was_given_up(
    stopped: Callable[..., Any], wires: Any, tmp_path: Path, stream: bool
) -> None:
    # What uvicorn itself breaks off ends without a word.
    told = await stopped(0, stream=stream)
    assert told.status_code == (200 if stream else 503)
    assert '"code":"cancelled"' in told.text
    assert "[DONE]" not in told.text
    (state,) = wires.forest(tmp_path, "r").calls.values()
    assert state.failed is not None
    assert state.failed.reason == "client_gone"


async def test_a_call_that_ends_soon_is_answered(
    stopped: Callable[..., Any], wired: Callable[..., Any], wires: Any, tmp_path: Path
) -> None:
    wired().script("A<|im_end|>")
    told = await stopped(0.3)
    assert told.json()["choices"][0]["message"]["content"] == "A"
    (state,) = wires.forest(tmp_path, "r").calls.values()
    assert state.committed is not None
