from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from turnstile.engines import EMBEDDED, EmbeddedServer, EmbeddedSettings, EngineKind, connect, tools_template
from turnstile.engines.smollm import model_folder
from turnstile.errors import EngineError
from turnstile.generation import Draw


@pytest.fixture
def settings(smollm):
    cache_home = smollm.parents[2]
    assert model_folder(cache_home) == smollm.parent
    return EmbeddedSettings(cache_home=cache_home, context=256, slots=1, threads=1)


@pytest.fixture
async def embedded(settings):
    server = await EmbeddedServer.open(settings)
    yield server
    await server.close()


@pytest.mark.engine
async def test_it_says_what_it_is_and_offers_a_template_with_tools(embedded, smollm):
    said = embedded.capabilities
    assert (said.engine, said.context_length, said.concurrency, said.vocab_size) == ("embedded", 256, 1, 49152)
    assert said.chat_template == tools_template()
    assert embedded.model_path == str(smollm)


@pytest.mark.engine
async def test_a_child_that_was_killed_is_reported_and_started_again(embedded, smollm_tokenizer, ask, prompt):
    engine = embedded.speaking(smollm_tokenizer)
    ids = smollm_tokenizer.encode("Once upon a time").tolist()

    async def kill(_delta):
        os.kill(embedded.pid, signal.SIGKILL)

    with pytest.raises(EngineError, match="crashed while it was sampling: it was ended by SIGKILL") as caught:
        await engine.generate(prompt(ids), Draw(seed=1), kill)
    assert caught.value.code == "engine_unreachable"
    assert "ended by SIGKILL" in await engine.health()
    answered = await ask(engine, ids, Draw(seed=1, max_tokens=3))
    assert len(answered.ids) == 3
    assert await engine.health() == ""


@pytest.mark.engine
async def test_closing_ends_the_child(settings, is_alive):
    server = await EmbeddedServer.open(settings)
    pid = server.pid
    await server.close()
    assert not is_alive(pid)


@pytest.mark.engine
def test_the_child_ends_when_its_parent_is_killed(settings, is_alive):
    program = """
        import asyncio, sys, pathlib
        from turnstile.engines import EmbeddedServer, EmbeddedSettings

        async def main():
            home = pathlib.Path(sys.argv[1])
            server = await EmbeddedServer.open(EmbeddedSettings(cache_home=home, context=256, slots=1, threads=1))
            print(server.pid, flush=True)
            await asyncio.Event().wait()

        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(settings.cache_home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
    deadline = time.monotonic() + 10
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(child)


@pytest.mark.engine
async def test_its_address_needs_the_key_that_it_was_started_with(embedded, settings):
    with pytest.raises(EngineError, match="status 401"):
        await connect(embedded.url, EngineKind.LLAMACPP)


@pytest.mark.engine
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the environment of a process is not to be seen")
async def test_its_process_is_told_no_key_of_turnstiles(settings, monkeypatch):
    for name in ("TURNSTILE_ADMIN_KEY", "TURNSTILE_READ_KEY", "TURNSTILE_ENGINE_API_KEY", "TURNSTILE_ENGINE_API_KEYS"):
        monkeypatch.setenv(name, "planted")
    server = await EmbeddedServer.open(settings)
    try:
        told = await asyncio.to_thread(Path(f"/proc/{server.pid}/environ").read_bytes)
        assert b"PATH=" in told
        assert b"planted" not in told
    finally:
        await server.close()


@pytest.mark.engine
async def test_connect_starts_it_by_its_name(settings):
    server = await connect(EMBEDDED, embedded=settings)
    assert server.capabilities.models == ("smollm2-135m",)
    await server.close()
