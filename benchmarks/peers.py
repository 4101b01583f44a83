"""Other proxies under the same load, each in an environment of its own under .cache/, never in ours."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from load import Target
from materials import MODEL
from processes import DidNotStart, Server, start_polling

HOME = Path(__file__).resolve().parent.parent / ".cache" / "peers"
_INSTALL_PATIENCE_S = 900
_KEY = "sk-bench"


@dataclass(frozen=True)
class Peer:
    """A proxy that the package index has."""

    name: str
    requirement: str
    start: Callable[[Path, str, Path], Server]
    """From (its environment's bin folder, the engine's URL, a folder for files) to a running server."""
    target: Callable[[str], Target]
    """From its URL to where chat completions go."""

    def installed(self) -> Path:
        """Its environment's bin folder, made at the first time. Raises: DidNotStart."""
        folder = HOME / self.name
        ready = folder / ".installed"
        if not ready.exists():
            print(f"installing {self.requirement} into {folder} ...", file=sys.stderr)
            pip = str(folder / "bin" / "pip")
            for command in ([sys.executable, "-m", "venv", str(folder)], [pip, "install", "-q", self.requirement]):
                _run(command)
            ready.touch()
        return folder / "bin"


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_INSTALL_PATIENCE_S)
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise DidNotStart(f"it cannot be installed: {' '.join(last)}") from error
    except subprocess.TimeoutExpired as error:
        raise DidNotStart(f"it was not installed within {_INSTALL_PATIENCE_S} s") from error


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _start_rllm(programs: Path, engine: str, folder: Path) -> Server:
    port = _free_port()
    address = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
    keeping = ["--store", "sqlite", "--db-path", str(folder / "rllm.sqlite3")]
    command = [str(programs / "rllm-model-gateway"), *address, *keeping, "--worker", f"{engine}/v1"]
    return start_polling(command, f"http://127.0.0.1:{port}", "/health", folder / "rllm.log", {})


def _start_litellm(programs: Path, engine: str, folder: Path) -> Server:
    port = _free_port()
    route = {"model": f"openai/{MODEL}", "api_base": f"{engine}/v1", "api_key": _KEY}
    settings = {
        "model_list": [{"model_name": MODEL, "litellm_params": route}],
        "litellm_settings": {"telemetry": False, "request_timeout": 600},
        "general_settings": {"master_key": _KEY},
    }
    file = folder / "litellm.yaml"
    file.write_text(json.dumps(settings))
    command = [str(programs / "litellm"), "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
    quiet = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "LITELLM_LOG": "ERROR",
        "NO_PROXY": "127.0.0.1,localhost",
        "PATH": f"{programs}:{os.environ.get('PATH', '')}",
    }
    return start_polling(command, f"http://127.0.0.1:{port}", "/health/liveliness", folder / "litellm.log", quiet)


def _rllm_target(url: str) -> Target:
    return Target("rllm-model-gateway", lambda rollout_id: f"{url}/sessions/{rollout_id}/v1/chat/completions")


def _litellm_target(url: str) -> Target:
    return Target("litellm", lambda _: f"{url}/v1/chat/completions", {"authorization": f"Bearer {_KEY}"})


PEERS = (
    Peer("rllm-model-gateway", "rllm-model-gateway", _start_rllm, _rllm_target),
    Peer("litellm", "litellm[proxy]", _start_litellm, _litellm_target),
)
