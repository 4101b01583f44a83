"""A whole small run, in TRL's environment: killed servers, a killed trainer, and what is left of it all."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
RL = ROOT / "examples" / "rl"
TRAINERS = ROOT / "tests" / "trainers"
PATIENCE_S = 600.0
SMALL = (
    *("train.steps=3", "train.prompts=2", "train.generations=4", "train.rows_at_once=8", "train.save_every=1"),
    *("evaluate.every=1", "evaluate.tasks=4", "agents.at_once=8"),
)
pytestmark = pytest.mark.timeout(4 * PATIENCE_S)


@pytest.fixture(scope="module")
def python() -> str:
    """The interpreter of TRL's environment; skips where there is none."""
    sys.path.insert(0, str(TRAINERS))
    try:
        spec = importlib.util.spec_from_file_location("trainers_install_for_runs", TRAINERS / "install.py")
        assert spec is not None
        assert spec.loader is not None
        installer = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = installer
        spec.loader.exec_module(installer)
    finally:
        sys.path.remove(str(TRAINERS))
    (environment,) = [each for each in installer.ENVIRONMENTS if each.name == "trl"]
    if not installer.is_installed(environment):
        pytest.skip(f"trl: {installer.why_not(environment)}")
    return str(installer.python(environment))


@pytest.fixture(scope="module")
def variables() -> dict[str, str]:
    paths = f"{ROOT / 'src'}{os.pathsep}{RL}"
    return {
        **os.environ,
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore",
    }


MODEL = """
import random, sys
from pathlib import Path
import torch
from text.demonstrations import SLOPPY, demonstrate
from text.tasks import train_tasks
from text.warm_start import make_model, make_tokenizer, save_tokenizer

torch.manual_seed(0)
dice, tasks, folder = random.Random(0), train_tasks(0), Path(sys.argv[1])
talks = [demonstrate(next(tasks), SLOPPY, dice) for _ in range(300)]
tokenizer = make_tokenizer(["".join(piece.text for piece in talk) for talk in talks])
make_model(tokenizer).save_pretrained(folder)
save_tokenizer(tokenizer, folder)
"""


@pytest.fixture(scope="module")
def model(python: str, variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt nothing: what it samples are tokens, too."""
    folder = tmp_path_factory.mktemp("models") / "model"
    subprocess.run([python, "-c", MODEL, str(folder)], env=variables, check=True, timeout=PATIENCE_S)
    return folder


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def start(python: str, variables: dict[str, str], model: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def starting(out: Path, *more: str) -> subprocess.Popen[bytes]:
        settings = [word for each in (f"model.folder={model}", *SMALL) for word in ("--set", each)]
        command = [python, "-m", "loop.train", str(RL / "text" / "text.toml"), "--out", str(out), *settings, *more]
        with (out.parent / "said.log").open("ab") as log:
            started.append(subprocess.Popen(command, env=variables, stdout=log, stderr=log))
        return started[-1]

    yield starting
    for process in started:
        process.kill()
        process.wait()


def lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def wait_for(what: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        if process.poll() not in (None, 0) or time.monotonic() > deadline:
            pytest.fail((folder.parent / "said.log").read_text()[-4000:])
        time.sleep(0.05)


@pytest.fixture(scope="module")
def survived(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose Turnstile was killed in its second step, and the trainer behind it; it went on from there."""
    folder = tmp_path_factory.mktemp("run") / "killed"
    first = start(folder)
    evaluated = {"kind": "evaluation", "step": 1}
    wait_for(lambda: any(evaluated.items() <= line.items() for line in lines(folder)), first, folder)
    os.kill(json.loads((folder / "run.json").read_text())["turnstile_pid"], signal.SIGKILL)
    wait_for((folder / "trainer" / "checkpoint-2" / "trainer_state.json").exists, first, folder)
    first.kill()
    first.wait()
    second = start(folder, "--resume")
    wait_for(lambda: second.poll() == 0, second, folder)
    return folder


@pytest.fixture(scope="module")
def steps(survived: Path) -> list[dict[str, Any]]:
    return [line for line in lines(survived) if line["kind"] == "step"]


def test_a_run_goes_on_through_a_killed_server_and_a_killed_trainer(steps: list[dict[str, Any]]) -> None:
    assert [line["step"] for line in steps] == [1, 2, 3]
    assert [line["version"] for line in steps] == [0, 1, 2]


def test_the_step_in_which_the_server_was_killed_lost_nothing(steps: list[dict[str, Any]]) -> None:
    assert [line["rollouts"] + line["failed"] for line in steps] == [8, 8, 8]
    assert [line["failed"] for line in steps] == [0, 0, 0]


def test_in_every_step_the_trainers_numbers_are_the_recorded_ones(steps: list[dict[str, Any]]) -> None:
    assert max(line["difference_max"] for line in steps) < 1e-4
    assert all(line["exported_tokens"] == line["trained_tokens"] > 0 for line in steps)


def test_every_evaluation_is_there_once(survived: Path) -> None:
    assert [line["step"] for line in lines(survived) if line["kind"] == "evaluation"] == [0, 1, 2, 3]


def test_what_the_store_holds_validates(survived: Path, tmp_path: Path) -> None:
    exported = tmp_path / "rollouts.jsonl"
    for words in (["export", str(survived / "store"), "-o", str(exported)], ["validate", str(exported)]):
        command = [sys.executable, "-m", "turnstile.cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_rerendered_history_trains_rows_of_text(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "rerendered"
    process = start(folder, "--history", "rerendered", "--set", "train.steps=1")
    wait_for(lambda: process.poll() == 0, process, folder)
    (step,) = [line for line in lines(folder) if line["kind"] == "step"]
    assert step["exported_tokens"] == step["trained_tokens"] > 0
    assert step["difference_max"] == 0.0
