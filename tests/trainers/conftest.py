"""Programs that run inside a real trainer's environment, and what they say."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from openai import OpenAI

import turnstile
from turnstile.trajectory.files import write
from turnstile.trajectory.format import Rollout

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def _installer() -> Any:
    if "trainers_install" not in sys.modules:
        sys.path.insert(0, str(HERE))
        try:
            spec = importlib.util.spec_from_file_location("trainers_install", HERE / "install.py")
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules["trainers_install"] = module
        finally:
            sys.path.remove(str(HERE))
    return sys.modules["trainers_install"]


class Inside(Protocol):
    def __call__(self, trainer: str, script: Path, said: Any, *, limit_s: float = 110.0) -> Any: ...


@pytest.fixture(scope="session")
def inside() -> Inside:
    """Run a Python file in the environment of a trainer, by name: JSON on its stdin, JSON on its last line of stdout.

    The program can import `turnstile` too. Skips, with the reason, where the environment is not there; fails with what
    the program said on stderr if it does not end well.
    """

    def run(trainer: str, script: Path, said: Any, *, limit_s: float = 110.0) -> Any:
        done = subprocess.run(
            [str(python_of(trainer)), str(script)],
            input=json.dumps(said),
            capture_output=True,
            text=True,
            timeout=limit_s,
            env=environment_of(trainer),
            check=False,
        )
        if done.returncode != 0:
            pytest.fail(f"{script.name} in {trainer} ended with {done.returncode}:\n{done.stderr[-4000:]}")
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="session")
def trainer_environment() -> Callable[[str], tuple[Path, dict[str, str]]]:
    """Interpreter and variables for a program in the environment of a trainer, by name; skips where it is not there."""
    return lambda trainer: (python_of(trainer), environment_of(trainer))


@pytest.fixture(scope="session")
def embedded_rollouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rollouts of two turns of the embedded engine, one of them below temperature 1, as a file."""
    folder = tmp_path_factory.mktemp("embedded")
    with turnstile.serve(engine="embedded", store=folder / "store") as client:
        rollouts = [_talked(client, temperature) for temperature in (1.0, 0.7)]
    path = folder / "rollouts.jsonl"
    write(path, rollouts)
    return path


def _talked(client: turnstile.Client, temperature: float) -> Rollout:
    messages = [{"role": "user", "content": "Tell me about the sea."}]
    with client.rollout() as rollout, OpenAI(base_url=rollout.openai_base_url, api_key=rollout.agent_key) as agent:
        for follow in ("And about ships?", ""):
            said = agent.chat.completions.create(
                model="smollm2-135m", messages=messages, max_tokens=48, temperature=temperature, seed=5
            )
            messages += [{"role": "assistant", "content": said.choices[0].message.content}]
            messages += [{"role": "user", "content": follow}]
        rollout.finish(reward=1.0)
        return rollout.trajectory()


def python_of(trainer: str) -> Path:
    """The interpreter of an environment; skips where there is none."""
    installer = _installer()
    (environment,) = [each for each in installer.ENVIRONMENTS if each.name == trainer]
    if not installer.is_installed(environment):
        pytest.skip(f"{trainer}: {installer.why_not(environment)}")
    return installer.python(environment)


def environment_of(trainer: str) -> dict[str, str]:
    """What a program in there is to see of ours: no network, no telemetry, one thread, this checkout."""
    ours = {
        "PYTHONPATH": str(ROOT / "src"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "WANDB_MODE": "disabled",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "DO_NOT_TRACK": "1",
        "PYTHONWARNINGS": "ignore",
    }
    return {**os.environ, **ours}
