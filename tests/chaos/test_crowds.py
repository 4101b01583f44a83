"""Public case M1 under a crowd: all that clients ask at once reaches the engine at once, and health is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.timeout(300)
AT_ONCE = 150


async def test_case_m1_all_that_clients_ask_at_once_reaches_the_engine_at_once(
    besieged: Callable[..., Any], chaos_engine: Any, tmp_path: Path
) -> None:
    siege, fake = besieged(tmp_path / "store"), chaos_engine.fake
    body = {"model": "m", "messages": [{"role": "user", "content": "go"}], "max_tokens": 16}
    fake.held, began = True, fake.begun
    try:
        async with (
            httpx.AsyncClient(timeout=90, trust_env=False, limits=httpx.Limits(max_connections=None)) as http,
            asyncio.TaskGroup() as clients,
        ):
            url = f"{siege.server.url}/r/at-once-{{}}/v1/chat/completions"
            asked = [clients.create_task(http.post(url.format(at), json=body)) for at in range(AT_ONCE)]
            await siege.until(lambda: fake.begun == began + AT_ONCE)
            # Whoever asks how it is is answered meanwhile.
            health = await http.get(f"{siege.server.url}/healthz")
            fake.held = False
    finally:
        fake.held = False
    assert health.status_code == 200
    assert [each.result().status_code for each in asked] == [200] * AT_ONCE
