"""The worker of `sandbox.py`: JSON lines in, a forked child for each, JSON lines out. Needs nothing but Python."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from typing import Any

ALARM_S = 2
PATIENCE_S = 3.0
MEMORY = 512 * 2**20
FILE_SIZE = 2**20
OPEN_FILES = 32
REPORT_BYTES = 4096
TEXT_CHARS = 120
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
REFUSED = (
    "socket.",
    "subprocess.",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "os.kill",
    "ctypes.",
)
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "shutil.")


def leave_network() -> None:
    """A network namespace without an interface, where the kernel grants one; the audit hook refuses sockets anyway."""
    unshare = getattr(ctypes.CDLL(None, use_errno=True), "unshare", None)
    if unshare is not None and unshare(CLONE_NEWNET) != 0:
        unshare(CLONE_NEWUSER | CLONE_NEWNET)


def limit() -> None:
    """Time, memory and files of the child."""
    resource.setrlimit(resource.RLIMIT_CPU, (ALARM_S, ALARM_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(ALARM_S)


def refuse_outside(folder: str) -> None:
    """Refuse, for good, to start processes, to open sockets and to write outside the folder."""
    inside = os.path.realpath(folder) + os.sep

    def is_inside(path: Any) -> bool:
        return os.path.realpath(os.fspath(path)).startswith(inside)

    def hook(event: str, values: tuple[Any, ...]) -> None:
        if event.startswith((*REFUSED, *CHANGES)):
            raise PermissionError(f"{event} is not allowed here")
        if event == "open" and _is_write(values[1], values[2]) and not is_inside(values[0]):
            raise PermissionError("no writing outside the repository")

    sys.addaudithook(hook)


def _is_write(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) != 0


def run_tests(tests: str) -> dict[str, Any]:
    """Run every `test_` function of a source text; the first failure is the report."""
    count = 0
    try:
        space: dict[str, Any] = {"__name__": "test_solution"}
        exec(compile(tests, "test_solution.py", "exec"), space)
        for name, test in list(space.items()):
            if name.startswith("test_") and callable(test):
                test()
                count += 1
    except BaseException as error:  # noqa: BLE001 - whatever the code under test raises is its failure
        last = traceback.format_exception_only(error)[-1].strip()
        return {"passed": False, "text": f"FAILED: {last}"[:TEXT_CHARS]}
    return {"passed": count > 0, "text": f"PASSED: {count}" if count else "FAILED: no tests"}


def child(asked: dict[str, str], report: int) -> None:
    """The child's whole life."""
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)
    os.setsid()
    limit()
    os.chdir(asked["folder"])
    sys.path[:0] = [asked["folder"]]
    sys.dont_write_bytecode = True
    refuse_outside(asked["folder"])
    os.write(report, json.dumps(run_tests(asked["tests"])).encode()[:REPORT_BYTES])


def watched(pid: int, reading: int) -> dict[str, Any]:
    """What the child reported, or how it ended."""
    said = b""
    deadline = time.monotonic() + PATIENCE_S
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        piece = os.read(reading, REPORT_BYTES)
        if not piece:
            break
        said += piece
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    try:
        return json.loads(said)
    except ValueError:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        timed_out = number in (signal.SIGALRM, signal.SIGXCPU, signal.SIGKILL)
        return {"passed": False, "text": f"FAILED: stopped after {ALARM_S} s" if timed_out else "FAILED: it crashed"}


def main() -> None:
    """Serve until stdin ends."""
    leave_network()
    for line in sys.stdin:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                child(json.loads(line), writing)
            finally:
                os._exit(0)
        os.close(writing)
        print(json.dumps(watched(pid, reading)), flush=True)
        os.close(reading)


if __name__ == "__main__":
    main()
