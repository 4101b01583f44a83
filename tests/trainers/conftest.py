"""Programs that run inside a real trainer's environment, and what they say."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest

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
