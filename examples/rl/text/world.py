"""The coding agent as a world for the training loop: its tasks, its rollouts, their rewards."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path

from loop.worlds import Outcome
from text.agent import Model, solve, tools_of
from text.sandbox import Sandbox
from text.tasks import KINDS, TEST_FILE, Task, held_out_tasks, reward, train_tasks, write_repository
from turnstile.client import RolloutHandle


class TextWorld:
    """Repositories to be put right by an agent on the OpenAI SDK."""

    kinds = len(KINDS)
    """Each run of so many training prompts has every kind once."""

    def __init__(self, options: Mapping[str, object]) -> None:
        """Start the sandbox's workers: `sandbox_workers` of them."""
        workers = options.get("sandbox_workers", 2)
        assert isinstance(workers, int)
        self._sandbox = Sandbox(workers)

    def train_prompts(self, seed: int, count: int) -> list[str]:
        """The first tasks of a seed, encoded."""
        return [task.encode() for task in itertools.islice(train_tasks(seed), count)]

    def held_out_prompts(self) -> list[str]:
        """The fixed tasks of evaluation, encoded."""
        return [task.encode() for task in held_out_tasks()]

    def run(self, rollout: RolloutHandle, prompt: str, *, model: str, temperature: float) -> Outcome:
        """Let the agent work on a fresh copy of a task's repository, then run the hidden tests."""
        task = Task.decode(prompt)
        with tempfile.TemporaryDirectory(prefix="repository-") as place:
            folder = Path(place)
            write_repository(task, folder)
            tools = tools_of(folder, self._tests_of)
            asked = Model(rollout.openai_base_url, rollout.agent_key, model, temperature)
            ended = solve(asked, task.specification, tools)
            solved = self._sandbox.run(folder, task.hidden_tests()).passed
        return Outcome(
            reward=reward(solved=solved, turns=ended.turns, clean=ended.clean),
            score=float(solved),
            turns=ended.turns,
            is_clean=ended.clean,
        )

    def close(self) -> None:
        """End the sandbox's workers."""
        self._sandbox.close()

    def _tests_of(self, folder: Path) -> str:
        try:
            tests = (folder / TEST_FILE).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return "FAILED: no tests"
        return self._sandbox.run(folder, tests).text


def make_world(options: Mapping[str, object]) -> TextWorld:
    """What the loop calls."""
    return TextWorld(options)
