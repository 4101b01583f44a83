"""Runs test files on a folder's code in a process of its own, with limits on time, memory, files and network.

A worker is a small Python that forks a child for each run: a few milliseconds, and nothing of one run is left for the
next. It keeps a young model's accidents away from the machine; it is no jail for a program that wants out.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

WORKER = Path(__file__).with_name("sandbox_worker.py")


@dataclass(frozen=True)
class Report:
    """What a run of tests said."""

    passed: bool
    text: str


class Sandbox:
    """Some workers; a run takes the first that is free."""

    def __init__(self, workers: int = 2) -> None:
        """Start the workers."""
        self._processes = [_start() for _ in range(workers)]
        self._free: queue.Queue[int] = queue.Queue()
        for index in range(workers):
            self._free.put(index)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, folder: Path, tests: str) -> Report:
        """Run the test functions of a source text against the modules of a folder."""
        index = self._free.get()
        try:
            return self._ask(index, json.dumps({"folder": str(folder), "tests": tests}))
        finally:
            self._free.put(index)

    def close(self) -> None:
        """End the workers."""
        for process in self._processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.wait(timeout=10)
            process.stdout.close()

    def _ask(self, index: int, line: str) -> Report:
        process = self._processes[index]
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            process.kill()
            process.wait()
            self._processes[index] = _start()
            return Report(passed=False, text="FAILED: the sandbox ended")
        said = json.loads(answer)
        return Report(said["passed"], said["text"])


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", str(WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0"},
    )
