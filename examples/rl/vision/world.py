"""The computer-use agent as a world for the training loop: its pages, its rollouts, their rewards, and its trainer."""

from __future__ import annotations

from collections.abc import Mapping

from loop.worlds import Outcome, TrainerParts
from turnstile.client import RolloutHandle
from vision.agent import Model, Window, work
from vision.computer import Computer, open_computers
from vision.screen import COLOURS, Task, reward, tasks

HELD_OUT = 96
HELD_OUT_SEED = 1
SEEDS_APART = 100_000
"""Training tasks of a seed begin at so many times the seed; there are fewer of them."""


class VisionWorld:
    """Pages to be worked on by an agent on the OpenAI SDK."""

    kinds = len(COLOURS)
    """Each run of so many training prompts has every colour once."""

    def __init__(self, options: Mapping[str, object]) -> None:
        """Open `tabs` pages; `screen` is `auto`, `chromium` or `drawn`, `window` the screenshots that stay, 0 = all."""
        kind, tabs, window = options.get("screen", "auto"), options.get("tabs", 8), options.get("window", 0)
        assert isinstance(kind, str)
        assert isinstance(tabs, int)
        assert isinstance(window, int)
        self._window = Window(window)
        self._computers, said = open_computers(kind, tabs)
        print(said, flush=True)

    def train_prompts(self, seed: int, count: int) -> list[str]:
        """The first tasks of a seed, encoded."""
        first = seed * SEEDS_APART
        rounds = range(0, count, len(COLOURS))
        return [each.encode() for at in rounds for each in tasks(first + at, len(COLOURS))][:count]

    def held_out_prompts(self) -> list[str]:
        """The fixed tasks of evaluation, encoded."""
        return [task.encode() for task in tasks(HELD_OUT_SEED, HELD_OUT)]

    def run(self, rollout: RolloutHandle, prompt: str, *, model: str, temperature: float) -> Outcome:
        """Let the agent work on a page, then look at what has become of it."""
        task = Task.decode(prompt)
        with self._computers.computer(task) as computer:
            asked = Model(rollout.openai_base_url, rollout.agent_key, model, temperature)
            ended = work(asked, self.request(task), self.shown(computer), self._window)
            gained = reward(computer.stage())
        return Outcome(reward=gained, score=gained, turns=ended.turns, is_clean=ended.is_done)

    def request(self, task: Task) -> str:
        """What the agent is told."""
        return task.instruction()

    def shown(self, computer: Computer) -> Computer:
        """What the agent looks at."""
        return computer

    def close(self) -> None:
        """End the browser."""
        self._computers.close()


def make_world(options: Mapping[str, object]) -> VisionWorld:
    """What the loop calls."""
    return VisionWorld(options)


def trainer_parts() -> TrainerParts:
    """The classes for a model that sees."""
    from vision.trainer import ImageModel, ImageProcessor, ImageTrainer

    return TrainerParts(ImageModel, ImageProcessor, ImageTrainer)
