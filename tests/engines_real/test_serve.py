"""What starts real engines leaves none of them behind, and says what is not installed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 30.0


def runs(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_an_engine_ends_with_whoever_started_it_and_so_does_what_it_started(real_engines: Any) -> None:
    # The shell stands for the server, and what it starts in the background for the engine behind it.
    server = ["sh", "-c", "sleep 600 & echo $!; wait"]
    starter = (
        "import subprocess, sys, time\n"
        "subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, start_new_session=True)\n"
        "time.sleep(600)"
    )
    words = [sys.executable, "-c", starter, sys.executable, "-c", real_engines.GUARD, *server]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        engine = int(parent.stdout.readline())
        assert runs(engine)
        os.kill(parent.pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while runs(engine):
            assert time.monotonic() < deadline, "the engine outlived whoever started it"
            time.sleep(0.05)


def test_what_is_not_installed_is_named(real_engines: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert real_engines.install.missing("tiny-qwen3") == ["vLLM 0.32.0 for CPUs", "the checkpoint tiny-qwen3"]
