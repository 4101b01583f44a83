"""From settings to a running server, and what is said of settings that cannot be."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from turnstile.config import Settings
from turnstile.engines.smollm import say_nothing
from turnstile.errors import TurnstileError
from turnstile.server.start import listening


async def running(settings: Settings) -> Any:
    async with listening(settings, say_nothing) as (running, _, _):
        return running


@pytest.mark.parametrize(
    ("changes", "code", "word"),
    [
        ({"host": "0.0.0.0"}, "admin_key_needed", "--admin-key"),
        ({"engine": "embeded"}, "engine_address", "neither a URL nor `embedded`"),
        ({"engine": "127.0.0.1:9", "tokenizer": None}, "engine_address", "http://127.0.0.1:9"),
        ({"tokenizer": None}, "tokenizer_needed", "--tokenizer"),
        ({"tokenizer": Path("/nowhere")}, "tokenizer_missing", "tokenizer.json"),
        ({"engine": "http://127.0.0.1:9"}, "engine_unreachable", "127.0.0.1:9"),
        ({"answer_format": "esperanto"}, "unknown_format", "hermes"),
        ({"no_quirks": ("biling_line",)}, "quirk_unknown", "billing_line"),
        ({"plugin_bridges": "renderer"}, "plugin_unknown", "renderers"),
        ({"quirks": Path("/nowhere")}, "file_unreadable", "/nowhere"),
        ({"quirks": Path(__file__)}, "quirks_invalid", "TOML"),
        ({"store": Path("/proc/nowhere")}, "store_error", "directory"),
        ({"host": "192.0.2.1", "admin_key": "k"}, "port_taken", "192.0.2.1"),
    ],
)
async def test_settings_that_cannot_be_are_refused_with_a_remedy(
    settings: Settings, changes: dict[str, Any], code: str, word: str
) -> None:
    with pytest.raises(TurnstileError) as refused:
        await running(msgspec.structs.replace(settings, **changes))
    assert refused.value.code == code
    assert word in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"tokenizer": None}, "tokenizer_needed"),
        ({"tokenizer": Path("/nowhere")}, "tokenizer_missing"),
        ({"template": Path("/nowhere")}, "file_unreadable"),
        ({"answer_format": "esperanto"}, "unknown_format"),
        ({"plugin_bridges": "renderer"}, "plugin_unknown"),
    ],
)
async def test_options_and_files_are_looked_at_before_an_engine_is_asked(
    settings: Settings, changes: dict[str, Any], code: str
) -> None:
    nobody = msgspec.structs.replace(settings, engine="http://127.0.0.1:9")
    with pytest.raises(TurnstileError) as refused:
        await running(msgspec.structs.replace(nobody, **changes))
    assert refused.value.code == code


async def test_a_start_that_fails_leaves_no_store(settings: Settings, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with socket.create_server(("127.0.0.1", 0)) as other:
        for changes in ({"engine": "http://127.0.0.1:9"}, {"port": other.getsockname()[1]}):
            with pytest.raises(TurnstileError):
                await running(msgspec.structs.replace(settings, store=store, **changes))
    assert not store.exists()


async def test_a_taken_port_is_named(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(TurnstileError, match=f"127.0.0.1:{port}"):
            await running(msgspec.structs.replace(settings, port=port))


async def test_a_store_has_one_server_and_is_free_when_that_has_gone(settings: Settings) -> None:
    async with listening(settings, say_nothing):
        with pytest.raises(TurnstileError) as refused:
            await running(settings)
    assert refused.value.status == 503
    assert (await running(settings)).model == "m"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{% for i in range(99000) %}{{ ('x' * 600) | upper | length }}{% endfor %}", "for one message"),
        ("{% for i in range(40000) %}{% set x = i %}{% endfor %}" * 30, "steps"),
    ],
    ids=["slow", "endless"],
)
async def test_a_template_that_takes_too_long_for_one_message_is_refused_before_an_engine_is_asked(
    settings: Settings, tmp_path: Path, source: str, words: str
) -> None:
    template = tmp_path / "t.jinja"
    template.write_text(source, encoding="utf-8")
    with pytest.raises(TurnstileError, match=words):
        await running(msgspec.structs.replace(settings, engine="http://127.0.0.1:9", template=template))


def test_a_server_that_is_left_lets_its_port_go(wire_up: Callable[..., Any], tools_folder: Path) -> None:
    with wire_up(tools_folder, ["<|im_end|>"]) as room:
        url = room.client.url
        assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz", trust_env=False)
