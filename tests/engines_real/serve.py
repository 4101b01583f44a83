"""Real engines as processes: started on free ports, waited for, logged, killed at the end.

    python tests/engines_real/serve.py vllm [--port N] [--images] [FLAG ...]      more flags go to vLLM
    python tests/engines_real/serve.py llamacpp

prints one JSON line with the address, and serves until it is ended. Tests use the classes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.request import Request, urlopen

import msgspec

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import install  # noqa: E402 - a script beside this one; the folder is no package

import turnstile.engines.embedded_child as embedded_child  # noqa: E402

START_LIMIT_S = 600.0
"""vLLM takes 50 s on an idle machine with two cores, and some minutes on a busy one."""
CONTEXT = 2048
MODEL = "tiny"
LOG_TAIL_CHARS = 2000


def free_port() -> int:
    """One that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


GUARD = """
import os, signal, subprocess, sys, threading
def watch():
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=watch, daemon=True).start()
sys.exit(subprocess.call(sys.argv[1:], stdin=subprocess.DEVNULL))
"""
"""Ends a command and all that it started when the one who asked for it is gone: vLLM's engine outlives its server."""


class Vllm:
    """vLLM's API server and the processes that it starts."""

    KEY = ""

    def __init__(self, *flags: str, checkpoint: str = "tiny-qwen3", port: int = 0) -> None:
        """Start it and wait until it answers. Raises: RuntimeError with the end of its log if it does not."""
        self.checkpoint = checkpoint
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.flags = flags or VLLM_FLAGS[checkpoint]
        self.log_path = install.home() / "logs" / f"vllm-{self.port}.log"
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self.log_path.unlink(missing_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @classmethod
    def at_hand(cls) -> Vllm | Attached:
        """The one that `TURNSTILE_VLLM` gives the address of, else a new one."""
        url = os.environ.get("TURNSTILE_VLLM")
        return Attached(url) if url else cls()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, again if it was killed, on the same port."""
        words = [sys.executable, "-c", GUARD, str(install.python()), "-m", "vllm.entrypoints.openai.api_server"]
        words += ["--model", str(install.models()[self.checkpoint]), "--served-model-name", MODEL]
        words += ["--host", "127.0.0.1", "--port", str(self.port), *self.flags]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **VLLM_ENVIRONMENT},
                start_new_session=True,
            )
        deadline = time.monotonic() + START_LIMIT_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"vLLM did not start; its log ends:\n{self.log_path.read_text()[-LOG_TAIL_CHARS:]}")
            time.sleep(0.5)
        self._warm_up()

    def _warm_up(self) -> None:
        # The first request compiles, for seconds on an idle machine and a minute on a busy one.
        body = json.dumps({"model": MODEL, "prompt": [1, 2, 3], "max_tokens": 2}).encode()
        request = Request(f"{self.url}/v1/completions", body, {"content-type": "application/json"})
        with urlopen(request, timeout=START_LIMIT_S) as answer:
            answer.read()

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/health", timeout=5) as answer:
                return answer.status == 200
        except (URLError, OSError):
            return False

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


class Attached:
    """A vLLM that somebody else started and will end."""

    KEY = ""

    def __init__(self, url: str) -> None:
        self.url = url

    def kill(self) -> None:
        """Leave it alone."""


class Llamacpp:
    """llama.cpp's server, as Turnstile's embedded engine runs it."""

    KEY = "engine-key"

    def __init__(self, context: int = CONTEXT, slots: int = 4) -> None:
        """Start it with the tiny Qwen3. Raises: RuntimeError if it does not."""
        model = install.models()["tiny-qwen3"] / "model.gguf"
        settings = embedded_child.ChildSettings(str(model), MODEL, self.KEY, context, slots, 1)
        program = [sys.executable, "-P", embedded_child.__file__]
        self._process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        stdin, stdout = self._pipes()
        stdin.write(msgspec.json.encode(settings) + b"\n")
        stdin.flush()
        report = json.loads(stdout.readline() or '{"error": "it ended"}')
        if "error" in report:
            raise RuntimeError(f"llama.cpp did not start: {report['error']}")
        self.url: str = report["url"]

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def kill(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for pipe in self._pipes():
            pipe.close()


VLLM_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_SERVER_DEV_MODE": "1",
}
_ALWAYS = (
    *("--dtype", "float32", "--max-model-len", str(CONTEXT), "--max-num-seqs", "16", "--enforce-eager"),
    *("--logprobs-mode", "processed_logprobs", "--enable-scale-out"),
)
VLLM_FLAGS = {
    "tiny-qwen3": (
        *_ALWAYS,
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"),
    ),
    "tiny-qwen2.5-vl": _ALWAYS,
}
"""What each checkpoint is served with: float32, log-probabilities of the distribution sampled from, all doors open."""


def main() -> None:
    """The command."""
    kind, *rest = sys.argv[1:]
    if kind == "llamacpp":
        server: Vllm | Llamacpp = Llamacpp()
    else:
        port = int(rest.pop(rest.index("--port") + 1)) if "--port" in rest else 0
        flags = [each for each in rest if each not in ("--port", "--images")]
        checkpoint = "tiny-qwen2.5-vl" if "--images" in rest else "tiny-qwen3"
        more = (*VLLM_FLAGS[checkpoint], *flags) if flags else ()
        server = Vllm(*more, checkpoint=checkpoint, port=port)
    said = {"url": server.url, "key": server.KEY}
    said |= {"log": str(server.log_path), "pid": server.pid} if isinstance(server, Vllm) else {}
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.pause()
    server.kill()


if __name__ == "__main__":
    main()
