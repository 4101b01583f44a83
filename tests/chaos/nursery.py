"""Turnstile processes that start fast and die hard.

Importing everything takes longer than opening a store does. So one process imports, and each Turnstile is forked from
it: a process of its own, with a store of its own, that is killed like any other. Run as a program, it reads one JSON
line of arguments of `turnstile` a process from stdin and answers with one line, `{"pid": ...}`; each server prints the
line of `turnstile serve --json` when it is ready.
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


class Forked:
    """One process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def kill(self) -> None:
        """End it as the kernel ends a process: now, with nothing said."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    @property
    def lives(self) -> bool:
        """Whether it has not ended."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        return state not in "ZX"


class Turnstile(Forked):
    """One process that serves a store."""

    def __init__(self, pid: int, url: str) -> None:
        super().__init__(pid)
        self.url = url

    def resident_bytes(self) -> int:
        """Its physical memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def open_files(self) -> int:
        """Its file descriptors."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


class Nursery:
    """Starts Turnstiles."""

    def __init__(self, log: Path, environment: dict[str, str] | None = None) -> None:
        """Begin a process that imports everything.

        Args:
            log: what its children write to stderr.
            environment: what they have in their environment beside ours.
        """
        self.log = log
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **(environment or {})},
        )

    def start(self, options: list[str], patience_s: float = 300.0) -> Turnstile:
        """A Turnstile that is ready. `options` are those of `turnstile serve`; it is forked, not run."""
        told = self._told({"pid", "url"}, ["serve", "--json", *options], patience_s)
        return Turnstile(told["pid"], told["url"])

    def run(self, arguments: list[str], patience_s: float = 300.0) -> Forked:
        """Any other command of `turnstile`; what it prints goes to the log."""
        return Forked(self._told({"pid"}, arguments, patience_s)["pid"])

    def _told(self, wanted: set[str], arguments: list[str], patience_s: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments).encode() + b"\n")
        self._process.stdin.flush()
        told: dict[str, Any] = {}
        deadline = time.monotonic() + patience_s
        while not wanted <= told.keys():
            line = self._process.stdout.readline()
            told |= json.loads(line or b"{}")
            if not line or time.monotonic() > deadline or told.get("ended", 0) == told.get("pid"):
                raise RuntimeError(f"no Turnstile came up; see {self._log.name}")
        return told

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
        arguments = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _live(app, arguments)
        alive.append(pid)
        # In one write: the child may print at the same time.
        os.write(1, json.dumps({"pid": pid}).encode() + b"\n")
    for pid in alive:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _live(app: Any, arguments: list[str]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    serves = arguments[0] == "serve"
    if not serves:
        os.dup2(2, 1)
    try:
        app(arguments, standalone_mode=True)
    finally:
        # Whoever waits for its address must not wait for ever.
        if serves:
            os.write(1, json.dumps({"ended": os.getpid()}).encode() + b"\n")


if __name__ == "__main__":
    _nurse()
