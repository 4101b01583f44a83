"""Inference engines, and how to open the one that a person names."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol, assert_never

from turnstile.engines.address import EMBEDDED, engine_url
from turnstile.engines.base import Capabilities, Engine
from turnstile.engines.embedded import EmbeddedServer, EmbeddedSettings, cache_home, tools_template
from turnstile.engines.llamacpp import LlamaServer, random_seed
from turnstile.engines.sglang import SglangServer, is_sglang
from turnstile.engines.smollm import ShowProgress, say_nothing
from turnstile.engines.token_server import TokenServer, is_token_server
from turnstile.engines.vllm import VllmServer, is_vllm
from turnstile.engines.wire import Wire
from turnstile.tokens import IdRun, Vocabulary

__all__ = [
    "EMBEDDED",
    "Capabilities",
    "EmbeddedServer",
    "EmbeddedSettings",
    "Engine",
    "EngineKind",
    "EngineServer",
    "LlamaServer",
    "SglangServer",
    "TokenServer",
    "VllmServer",
    "cache_home",
    "connect",
    "engine_url",
    "tools_template",
]


class EngineKind(enum.StrEnum):
    """What stands behind an address."""

    AUTO = "auto"
    """Found out at start: each kind answers a route that the others do not have."""
    LLAMACPP = "llamacpp"
    SGLANG = "sglang"
    TOKEN_SERVER = "token_server"
    """Any engine that speaks the wire of docs/reference/engine-wire.md."""
    VLLM = "vllm"


class EngineServer(Protocol):
    """An engine that answers but cannot be sampled from yet: its tokenizer may come from the model it names."""

    @property
    def capabilities(self) -> Capabilities:
        """What it says it can do."""
        ...

    @property
    def model_path(self) -> str:
        """Where the gguf lies, as the engine says; empty if it does not. For a remote one, on its machine."""
        ...

    def speaking(self, vocabulary: Vocabulary, seeds: Callable[[], int] = random_seed) -> Engine:
        """The engine, once the tokenizer is known. Closing it closes this too."""
        ...

    async def tokenize(self, text: str) -> IdRun | None:
        """How it turns text into ids, special tokens recognised and none added; None if it cannot say."""
        ...

    async def health(self) -> str:
        """Empty if it is ready, else what is wrong, as a sentence."""
        ...

    async def close(self) -> None:
        """Let go of connections and child processes."""
        ...


async def connect(
    target: str,
    kind: EngineKind = EngineKind.AUTO,
    api_key: str = "",
    embedded: EmbeddedSettings | None = None,
    show: ShowProgress = say_nothing,
) -> EngineServer:
    """Open an engine.

    Args:
        target: its base URL, or `embedded` for the model that Turnstile ships.
        kind: what stands behind the URL.
        api_key: the engine's own key; never an agent's.
        embedded: how to run the embedded engine; the defaults if None.
        show: told how far the embedded model's download is.

    Raises: CallerError `engine_address` if it is no address, or no engine that is served is there; EngineError
    `engine_unreachable`, `engine_refused`, `engine_broken`, `engine_missing` or `model_unavailable`.
    """
    if target == EMBEDDED:
        return await EmbeddedServer.open(embedded or EmbeddedSettings(cache_home=cache_home()), show)
    url = engine_url(target)
    if kind is EngineKind.AUTO:
        kind = await _kind_of(url, api_key)
    match kind:
        case EngineKind.VLLM:
            return await VllmServer.open(url, api_key)
        case EngineKind.SGLANG:
            return await SglangServer.open(url, api_key)
        case EngineKind.TOKEN_SERVER:
            return await TokenServer.open(url, api_key)
        case EngineKind.AUTO | EngineKind.LLAMACPP:
            return await LlamaServer.open(url, api_key)
        case _:
            assert_never(kind)


async def _kind_of(url: str, api_key: str) -> EngineKind:
    """What answers at an address; llama.cpp's adapter says what is wrong with one that nobody recognises."""
    wire = Wire.open(url, api_key)
    try:
        if await is_vllm(wire):
            return EngineKind.VLLM
        if await is_sglang(wire):
            return EngineKind.SGLANG
        return EngineKind.TOKEN_SERVER if await is_token_server(wire) else EngineKind.LLAMACPP
    finally:
        await wire.close()
