"""The engine and Turnstile as processes of their own; Turnstile is started again whenever it ends."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from loop.settings import Settings

ROOT = Path(__file__).parents[3]
PAUSE_S = 0.1
READY_S = 120.0
END_S = 20.0
PR_SET_PDEATHSIG = 1
_LIBRARY = ctypes.CDLL(None)


def ask(url: str, body: dict[str, Any] | None = None, timeout_s: float = 120.0) -> Any:
    """JSON from a server of this machine. Raises: RuntimeError with what it said, if that is an error."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            text = answer.read()
    except urllib.error.HTTPError as refused:
        with refused:
            raise RuntimeError(
                f"{url} answered {refused.code}: {refused.read()[:500].decode(errors='replace')}"
            ) from None
    return json.loads(text) if text.strip() else None


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def variables(threads: int) -> dict[str, str]:
    """For processes of this checkout, without network and telemetry."""
    paths = (str(ROOT / "src"), str(ROOT / "examples" / "rl"), os.environ.get("PYTHONPATH", ""))
    ours = {
        "PYTHONPATH": os.pathsep.join(each for each in paths if each),
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    return {**os.environ, **ours}


def end_with_parent() -> None:
    """In a child, on Linux: do not outlive the run. An orphan would keep the store from the next one."""
    if sys.platform == "linux":
        _LIBRARY.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Service:
    """A process with a log file, that answers at an address when it is ready."""

    def __init__(self, name: str, command: list[str], ready_url: str, log: Path, threads: int) -> None:
        """Start nothing yet."""
        self._name = name
        self._command = command
        self._ready_url = ready_url
        self._log = log
        self._threads = threads
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, patience_s: float) -> None:
        """Start it, and wait until it answers. Raises: RuntimeError with the end of its log."""
        self.launch()
        deadline = time.monotonic() + patience_s
        while not self._is_ready():
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                said = self._log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self._name} did not become ready; the end of {self._log}:\n{said}")
            time.sleep(PAUSE_S)

    def launch(self) -> None:
        """Start it without waiting."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=variables(self._threads),
                preexec_fn=end_with_parent,
            )

    def stop(self) -> None:
        """End it, politely first."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _is_ready(self) -> bool:
        try:
            ask(self._ready_url, timeout_s=5.0)
        except (OSError, RuntimeError, ValueError):
            return False
        return True


class Supervisor:
    """Keeps Turnstile running on one port and one store until it is told to stop."""

    def __init__(self, service: Service) -> None:
        """Start nothing yet."""
        self._service = service
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        self.restarts = 0

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self._service.process is not None
        return self._service.process.pid

    def start(self) -> None:
        """Start Turnstile and wait for it."""
        self._service.start(READY_S)
        self._thread.start()

    def stop(self) -> None:
        """End it for good."""
        self._is_ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self._service.stop()

    def _watch(self) -> None:
        while not self._is_ending.wait(PAUSE_S):
            assert self._service.process is not None
            if self._service.process.poll() is not None:
                self.restarts += 1
                self._service.launch()


class Servers:
    """Engine and Turnstile of one run, as a `with` block."""

    def __init__(self, settings: Settings, model: Path, folder: Path, seed: int) -> None:
        """Choose ports; start nothing yet."""
        engine, python = settings.engine, sys.executable
        self._patience_s = engine.patience_s
        self.engine_url = engine.address
        self._engine: Service | None = None
        if engine.command:
            filled = {
                "rl": str(ROOT / "examples" / "rl"),
                "python": python,
                "model": str(model),
                "port": str(port := free_port()),
                "seed": str(seed),
            }
            self.engine_url = f"http://127.0.0.1:{port}"
            command = [each.format_map(filled) for each in engine.command]
            health = f"{self.engine_url}/health"
            self._engine = Service("The engine", command, health, folder / "engine.log", settings.train.threads)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [python, "-m", "turnstile.cli", "serve", "--engine", self.engine_url, "--engine-kind", engine.kind]
        command += ["--tokenizer", str(model), "--model", settings.model.name, "--store", str(folder / "store")]
        command += ["--port", str(port), *settings.serve.options]
        self.turnstile = Supervisor(
            Service("Turnstile", command, f"{self.url}/healthz", folder / "turnstile.log", threads=1)
        )

    def __enter__(self) -> Servers:
        if self._engine is not None:
            self._engine.start(self._patience_s)
        try:
            self.turnstile.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.turnstile.stop()
        if self._engine is not None:
            self._engine.stop()
