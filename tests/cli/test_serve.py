"""`turnstile serve`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from turnstile.client import Client
from turnstile.errors import CallerError


@contextmanager
def served(room: Any, folder: Path, store: Path, *options: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, "-m", "turnstile.cli", "serve", "--port", "0", "--store", str(store), *options]
    program += ["--engine", f"http://127.0.0.1:{room.fake.port}", "--tokenizer", str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdout=pipe, stderr=pipe, text=True, env=os.environ | environment) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_one_json_line_says_where_it_answers_and_a_signal_ends_it_in_order(
    wired: Callable[..., Any], tools_folder: Path, tmp_path: Path, stop: signal.Signals
) -> None:
    room = wired()
    with served(room, tools_folder, tmp_path, "--json", TURNSTILE_ADMIN_KEY="secret") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        told = json.loads(process.stdout.readline())
        with Client(told["url"], admin_key="secret") as client, client.rollout("r"):
            pass
        with Client(told["url"], admin_key="wrong") as client, pytest.raises(CallerError):
            client.rollout("r")
        process.send_signal(stop)
        out, err = process.communicate(timeout=20)
    assert (told["model"], told["engine"], type(told["notices"])) == ("m", "llamacpp", list)
    assert (out, "Traceback" in err, "secret" in err) == ("", False, False)
    assert process.returncode in (0, -stop, 128 + stop)


def test_a_person_is_told_where_agents_and_runners_go_and_which_doors_are_open(
    wired: Callable[..., Any], tools_folder: Path, tmp_path: Path
) -> None:
    with served(wired(), tools_folder, tmp_path) as process:
        assert process.stderr is not None
        told = [process.stderr.readline() for _ in range(5)]
    assert "model `m` on llamacpp" in told[0]
    assert "/r/ROLLOUT_ID/v1" in told[1]
    assert told[2].rstrip().endswith("/r/ROLLOUT_ID  (ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL)")
    assert told[3].rstrip().endswith("/rollouts")
    assert "No admin key" in told[4]
