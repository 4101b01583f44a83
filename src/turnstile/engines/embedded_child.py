"""The embedded engine's own process: a llama.cpp server that ends when its parent does.

Run by its path, so that it starts without the rest of Turnstile. The first line of standard input is the settings
as JSON; the first line of standard output is `{"url": ...}` or `{"error": ...}`. After that, standard input is only
watched: it ends when the parent closes it or dies, however it dies.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Protocol

import msgspec


class ChildSettings(msgspec.Struct, frozen=True):
    """What the child is to serve."""

    model_path: str
    model_name: str
    api_key: str
    context: int
    """Ids a slot can hold."""
    slots: int
    threads: int


class ChildReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the child says once it has started, or failed to."""

    url: str = ""
    error: str = ""


class _Listening(Protocol):
    """xllamacpp's server, which serves as long as the object lives."""

    @property
    def listening_address(self) -> str: ...


def _report(report: ChildReport) -> None:
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    sys.stdout.flush()


def _serve(settings: ChildSettings) -> _Listening:
    # An extra without types, which only this process ever loads.
    xllamacpp = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = settings.model_path
    params.model_alias = {settings.model_name}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings.api_key]
    params.n_ctx = settings.context * settings.slots
    params.n_parallel = settings.slots
    params.kv_unified = False
    params.n_gpu_layers = 0
    params.warmup = False
    params.ui = False
    params.endpoint_props = True
    params.endpoint_slots = True
    params.cpuparams.n_threads = settings.threads
    params.cpuparams_batch.n_threads = settings.threads
    # Saving an idle slot's cache at each new request would cost more than this model's prompts.
    params.cache_ram_mib = 0
    return xllamacpp.Server(params)


def main() -> None:
    """Serve until standard input ends."""
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=ChildSettings)
    try:
        server = _serve(settings)
    except ImportError as problem:
        _report(ChildReport(error=f"xllamacpp cannot be loaded ({problem})"))
        os._exit(1)
    except Exception as problem:  # noqa: BLE001 - the native library's errors have no common type
        _report(ChildReport(error=f"the model cannot be served ({problem})"))
        os._exit(1)
    _report(ChildReport(url=server.listening_address))
    while sys.stdin.buffer.read(1):
        pass
    # The native threads cannot be joined, and nothing is left to be saved.
    os._exit(0)


if __name__ == "__main__":
    main()
