"""Turnstile processes that start fast and die hard.

Importing everything takes longer than opening a store does. So one process imports, and each Turnstile is forked from
it: a process of its own, with a store of its own, that is killed like any other. Run as a program, it reads one JSON
line of settings a Turnstile from stdin and answers with one line, `{"pid": ...}`; each Turnstile prints the line of
`turnstile serve --json` when it is ready.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class Turnstile:
    """One process that serves a store."""

    def __init__(self, pid: int, url: str) -> None:
        self.pid = pid
        self.url = url

    def kill(self) -> None:
        """End it as the kernel ends a process: now, with nothing said."""
        os.kill(self.pid, signal.SIGKILL)

    def resident_bytes(self) -> int:
        """Its physical memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def open_files(self) -> int:
        """Its file descriptors."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


class Nursery:
    """Starts Turnstiles."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )

    def start(self, options: list[str], patience_s: float = 60.0) -> Turnstile:
        """A Turnstile that is ready. `options` are those of `turnstile serve`; it is forked, not run."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(options).encode() + b"\n")
        self._process.stdin.flush()
        told: dict[str, Any] = {}
        deadline = time.monotonic() + patience_s
        while not {"pid", "url"} <= told.keys():
            line = self._process.stdout.readline()
            if not line or time.monotonic() > deadline:
                raise RuntimeError(f"no Turnstile came up; see {self._log.name}")
            told |= json.loads(line)
        return Turnstile(told["pid"], told["url"])

    def close(self) -> None:
        """End it and whatever it still runs."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        if self._process.stdout:
            self._process.stdout.close()
        self._log.close()


def _nurse() -> None:
    from turnstile.cli import app

    # The kernel buries the dead: nobody here waits for them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    alive: list[int] = []
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            app(["serve", "--json", *json.loads(line)], standalone_mode=True)
        alive.append(pid)
        # In one write: the child may print at the same time.
        os.write(1, json.dumps({"pid": pid}).encode() + b"\n")
    for pid in alive:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    _nurse()
