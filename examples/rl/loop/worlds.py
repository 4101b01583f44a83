"""What the loop asks of a world: tasks, an agent that works on them, and a trainer where TRL's own is not enough."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from turnstile.client import RolloutHandle


@dataclass(frozen=True)
class Outcome:
    """How one agent did."""

    reward: float
    """What is trained on."""
    score: float
    """What is reported of held-out tasks, 0 to 1."""
    turns: int
    is_clean: bool


class World(Protocol):
    """Tasks are strings to the loop; only a world reads them."""

    kinds: int
    """Each run of so many training prompts, from the first on, is balanced."""

    def train_prompts(self, seed: int, count: int) -> list[str]:
        """The first `count` training tasks of a seed, in the order in which they are trained on."""
        ...

    def held_out_prompts(self) -> list[str]:
        """The fixed tasks of evaluation; none of them is ever trained on."""
        ...

    def run(self, rollout: RolloutHandle, prompt: str, *, model: str, temperature: float) -> Outcome:
        """Let the agent work on a task, through the rollout's address and key. Called from many threads at once."""
        ...

    def close(self) -> None:
        """Leave nothing running."""
        ...


@dataclass(frozen=True)
class TrainerParts:
    """Classes by which a world's model is trained."""

    model: Any
    """With `from_pretrained`."""
    processor: Any
    """With `from_pretrained`; its pad side is set to the left."""
    trainer: Any
    """`GRPOTrainer`, or a class derived from it. A world that carries images there names its own."""


def make_world(module: str, options: Mapping[str, object]) -> World:
    """Call `make_world(options)` of a module such as `text.world`."""
    return cast("World", importlib.import_module(module).make_world(options))


def trainer_parts(module: str) -> TrainerParts:
    """What `trainer_parts()` of the module says, or the classes for text."""
    own = getattr(importlib.import_module(module), "trainer_parts", None)
    if own is not None:
        return cast("TrainerParts", own())
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOTrainer

    from loop.positions import CausalModel

    return TrainerParts(CausalModel, PreTrainedTokenizerFast, GRPOTrainer)
