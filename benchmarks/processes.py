"""Start a server as a process of its own, and read what it costs from the kernel."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.request import ProxyHandler, build_opener


class DidNotStart(Exception):
    """A server did not come up; the message says why, as far as its log does."""


@dataclass(frozen=True)
class Server:
    """A running server."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def cpu_s(self) -> float:
        """User and system seconds of the process and its children so far."""
        return sum(_cpu_s(pid) for pid in _family(self.process.pid))

    def resident_bytes(self) -> int:
        """Physical memory of the process and its children."""
        return sum(_resident_bytes(pid) for pid in _family(self.process.pid))

    def stop(self) -> None:
        """End it and all that it started."""
        for sign, patience_s in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
            try:
                os.killpg(self.process.pid, sign)
            except ProcessLookupError:
                break
            try:
                self.process.wait(patience_s)
                break
            except subprocess.TimeoutExpired:
                continue
        if self.process.stdout:
            self.process.stdout.close()


def start_announcing(command: Sequence[str], log: Path, patience_s: float = 60.0) -> Server:
    """Start a server that prints one JSON line with its `url` on stdout when it is ready."""
    process = _start(command, log, {}, subprocess.PIPE)
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        line = process.stdout.readline() if waiting.select(patience_s) else b""
    try:
        return Server(json.loads(line)["url"], process, log)
    except (ValueError, KeyError, TypeError) as error:
        Server("", process, log).stop()
        raise DidNotStart(f"{_name(command)} did not say its address: {_tail(log)}") from error


def start_polling(
    command: Sequence[str], url: str, health: str, log: Path, environment: Mapping[str, str], patience_s: float = 120.0
) -> Server:
    """Start a server that answers 200 at `url + health` when it is ready."""
    server = Server(url, _start(command, log, environment, subprocess.DEVNULL), log)
    direct = build_opener(ProxyHandler({}))
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            with direct.open(url + health, timeout=2.0) as answer:
                if answer.status == 200:
                    return server
        except OSError:
            time.sleep(0.2)
    server.stop()
    raise DidNotStart(f"{_name(command)} did not answer at {health}: {_tail(log)}")


def _start(command: Sequence[str], log: Path, environment: Mapping[str, str], stdout: int) -> subprocess.Popen[bytes]:
    with log.open("wb") as errors:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=errors,
            env={**os.environ, **environment},
            start_new_session=True,
        )


def _name(command: Sequence[str]) -> str:
    return " ".join(Path(word).name for word in command[:3])


def _tail(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-3:]) or "nothing in its log"


def _family(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        try:
            tasks = list(Path(f"/proc/{one}/task").iterdir())
        except OSError:
            continue
        for task in tasks:
            try:
                found += map(int, (task / "children").read_text().split())
            except OSError:
                continue
    return found


def _cpu_s(pid: int) -> float:
    # The kernel's clock of another process (clock_getcpuclockid(3)): nanoseconds, where /proc has hundredths.
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
