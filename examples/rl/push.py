"""New weights into a running engine: one small interface, and the two engines that the examples run on.

`push(path, version)` returns when every token that is sampled from then on is of the new weights.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Protocol


class PushFailed(Exception):
    """The engine kept its old weights, or cannot say what it has."""


class Pusher(Protocol):
    """Puts a trainer's weights into an engine."""

    def push(self, path: Path, version: int) -> None:
        """Load the checkpoint in a folder that `save_pretrained` wrote, and call it `version`.

        Raises: PushFailed; the run must not go on then.
        """
        ...


class TokenServerPusher:
    """The server in `engine/`: one request, checked as a whole before a byte of the model changes."""

    def __init__(self, url: str, api_key: str = "") -> None:
        self._line = Line(url, api_key)

    def push(self, path: Path, version: int) -> None:
        told = self._line.post("/update_weights", {"path": str(path.resolve()), "version": version})
        if told["weight_version"] != str(version):
            raise PushFailed(f"The engine says that it has version {told['weight_version']}, not {version}")


class VllmPusher:
    """vLLM, started with `VLLM_SERVER_DEV_MODE=1`: its workers read another folder in place.

    Source: vLLM 0.32.0, `vllm/entrypoints/rl` and `vllm/entrypoints/serve/dev`. `/pause` waits until nothing runs,
    `/collective_rpc` calls `reload_weights` in each worker, `/reset_prefix_cache` forgets what the old weights
    computed, and `/update_weight_version` names the new ones, which `--enable-scale-out` tells of each token from then
    on. Missing tensors are only a warning in vLLM's log, so names and shapes are compared here before.
    """

    def __init__(self, url: str, started_with: Path, api_key: str = "") -> None:
        self._line = Line(url, api_key)
        self._shapes = shapes_of(started_with)

    def push(self, path: Path, version: int) -> None:
        if different := shapes_of(path).items() ^ self._shapes.items():
            raise PushFailed(f"{path} has other tensors than the engine was started with: {sorted(different)[:3]}")
        self._line.post("/pause?mode=wait", {})
        # An engine whose weights are half new stays paused: nothing is sampled from them.
        arguments = {"method": "reload_weights", "kwargs": {"weights_path": str(path.resolve())}, "timeout": 600}
        self._line.post("/collective_rpc", arguments)
        if not self._line.post("/reset_prefix_cache", {})["success"]:
            raise PushFailed("vLLM kept its prefix cache, which the old weights computed")
        self._line.post("/update_weight_version", {"new_version": str(version)})
        self._line.post("/resume", {})


def shapes_of(folder: Path) -> dict[str, str]:
    """Type and shape of each tensor of a checkpoint, read off the headers of its .safetensors files."""
    found: dict[str, str] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(size))
        found |= {name: f"{each['dtype']} {each['shape']}" for name, each in header.items() if name != "__metadata__"}
    if not found:
        raise PushFailed(f"{folder} has no .safetensors file")
    return found


class Line:
    """JSON to an engine and back."""

    def __init__(self, url: str, api_key: str, timeout_s: float = 600.0) -> None:
        self._url = url.rstrip("/")
        self._headers = {"content-type": "application/json"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._timeout_s = timeout_s

    def get(self, path: str) -> Any:
        return self._ask(urllib.request.Request(self._url + path, headers=self._headers))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._ask(urllib.request.Request(self._url + path, json.dumps(body).encode(), self._headers))

    def _ask(self, request: urllib.request.Request) -> Any:
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
                text = answer.read()
        except urllib.error.HTTPError as refused:
            raise PushFailed(
                f"{request.full_url}: {refused.code} {refused.read().decode(errors='replace')}"
            ) from refused
        except OSError as problem:
            raise PushFailed(f"{request.full_url}: {problem}") from problem
        return json.loads(text) if text.strip() else {}
