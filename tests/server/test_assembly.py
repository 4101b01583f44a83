"""What is told of the parts that a server is made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstile.config import Settings
from turnstile.engines.smollm import say_nothing
from turnstile.server.start import listening


async def running(settings: Settings) -> Any:
    async with listening(settings, say_nothing) as (running, _, _):
        return running


async def test_what_runs_is_told_with_its_open_doors(settings: Settings) -> None:
    told = await running(settings)
    assert told.url.startswith("http://127.0.0.1:")
    assert (told.model, told.engine) == ("m", "llamacpp")
    assert "No admin key" in told.notices[0]
    with_key = await running(msgspec.structs.replace(settings, admin_key="k"))
    assert not any("No admin key" in notice for notice in with_key.notices)


async def test_an_engine_that_cannot_say_how_it_tokenizes_is_told_at_start(settings: Settings) -> None:
    assert any("was not checked" in notice for notice in (await running(settings)).notices)


@pytest.mark.parametrize(("overflow", "context", "told"), [("clamp", 0, 1), ("clamp", 4096, 0), ("as_engine", 0, 0)])
async def test_that_nothing_can_be_clamped_to_an_unknown_window_is_told_at_start(
    wire_up: Callable[..., Any], tools_folder: Path, tmp_path: Path, overflow: str, context: int, told: int
) -> None:
    with wire_up(tools_folder, ["<|im_end|>"]) as room:
        room.fake.context = context
        engine = f"http://127.0.0.1:{room.fake.port}"
        started = await running(
            Settings(engine=engine, tokenizer=tools_folder, store=tmp_path, port=0, overflow=overflow)
        )
    assert [notice.startswith("--overflow clamp does nothing") for notice in started.notices].count(True) == told


async def test_a_template_that_cannot_be_spliced_is_told_at_start(settings: Settings, tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}", encoding="utf-8")
    told = await running(msgspec.structs.replace(settings, template=template))
    assert any("rendered again" in notice for notice in told.notices)


async def test_a_template_whose_checks_take_too_long_is_served_and_that_is_told(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("turnstile.server.assembly.AT_START_S", 0.0)
    told = await running(settings)
    assert [notice for notice in told.notices if notice.startswith("Template: not certified. After 0 s only")]


async def test_the_model_may_have_another_name_than_the_engines(settings: Settings) -> None:
    async with listening(msgspec.structs.replace(settings, model="mine"), say_nothing) as (told, _, _):
        assert told.model == "mine"
