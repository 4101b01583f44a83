"""Where the trainer's rows come from: agents that work through Turnstile, and what is checked of each row."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from loop.checks import check_proxy, check_rows, check_versions
from loop.clients import PatientClient
from loop.rerendered import drift_of, row_of
from loop.settings import Settings
from loop.worlds import Outcome, World
from turnstile.client import RolloutHandle
from turnstile.integrations.running import Task, run_all
from turnstile.integrations.trl import rollout_func
from turnstile.trajectory.format import Rollout
from turnstile.trajectory.format import Sequence as Row

History = Literal["exact", "rerendered"]


@dataclass
class Source:
    """A `rollout_func` that checks what it gives, and remembers it until the step is done."""

    client: PatientClient
    world: World
    settings: Settings
    tokenizer: Any
    tokenizer_sha256: str
    history: History
    before: Callable[[int], None]
    """Called with the step before its rollouts begin."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Of the rollouts of this step."""
    exported: int = 0
    """Tokens that the rows of this step let a loss count."""
    _outcomes: dict[str, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        agents = self.settings.agents
        self._live = rollout_func(
            self.client,
            self._run,
            workers=agents.at_once,
            one_sequence=agents.one_sequence,
            images=agents.images,
        )

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """What TRL calls."""
        step = int(trainer.state.global_step)
        self.before(step)
        self._outcomes.clear()
        self.client.taken.clear()
        began = time.monotonic()
        columns = self._live(prompts, trainer)
        took_s = time.monotonic() - began
        rollouts = [self.client.taken[str(each)] for each in columns["rollout_id"]]
        check_versions(rollouts, step)
        check_proxy(rollouts[0], self.tokenizer_sha256)
        masks: Any = columns["env_mask"]
        count = check_rows(rollouts, masks)
        rows = [(rollout, _row_of(rollout, sum(mask))) for rollout, mask in zip(rollouts, masks, strict=True)]
        self._describe(rollouts, rows, took_s)
        if self.history == "rerendered":
            columns = self._from_text(columns, rows)
            count = sum(map(sum, columns["env_mask"]))
        self.exported = count
        return columns

    def evaluate(self, name: str, temperature: float, prompts: list[str]) -> dict[str, Any]:
        """Held-out tasks: each a group of its own, which nobody trains on."""
        outcomes: list[Outcome] = []

        def run_one(rollout: RolloutHandle, prompt: object) -> float:
            outcomes.append(
                self.world.run(rollout, str(prompt), model=self.settings.model.name, temperature=temperature)
            )
            return outcomes[-1].reward

        tasks = [Task(prompt, f"{name}-{index}", 0) for index, prompt in enumerate(prompts)]
        run_all(self.client, run_one, tasks, self.settings.agents.at_once)
        return _means(outcomes, len(prompts))

    def _run(self, rollout: RolloutHandle, prompt: object) -> float:
        outcome = self.world.run(rollout, str(prompt), model=self.settings.model.name, temperature=1.0)
        self._outcomes[rollout.rollout_id] = outcome
        return outcome.reward

    def _describe(self, rollouts: list[Rollout], rows: list[tuple[Rollout, Row | None]], took_s: float) -> None:
        drift = drift_of([(rollout, row) for rollout, row in rows if row is not None], self.tokenizer)
        self.figures = {
            **_means(list(self._outcomes.values()), len(rollouts)),
            "failed": len(rollouts) - len(self._outcomes),
            "forks": sum(len(each.sequences) for each in rollouts) - len(rollouts),
            "rollouts": drift.rollouts,
            "differing": drift.differing,
            "sampled": drift.sampled,
            "wrong": drift.wrong,
            "tokens_per_s": drift.sampled / took_s,
            "rollouts_s": took_s,
            "server_waits": self.client.waits,
        }

    def _from_text(self, columns: dict[str, list[Any]], rows: list[tuple[Rollout, Row | None]]) -> dict[str, list[Any]]:
        made: list[dict[str, Any]] = []
        for at, (rollout, row) in enumerate(rows):
            as_it_was = {name: values[at] for name, values in columns.items()}
            made.append(as_it_was if row is None else as_it_was | row_of(rollout, row, self.tokenizer))
        return {name: [each[name] for each in made] for name in columns}


def _row_of(rollout: Rollout, trained: int) -> Row | None:
    """The sequence that a row of so many trained tokens was made of."""
    for sequence in rollout.sequences:
        if sum(each.end - each.start for each in sequence.segments if each.trainable) == trained:
            return sequence
    return None


def _means(outcomes: list[Outcome], asked: int) -> dict[str, float]:
    if not outcomes:
        return {"reward": 0.0, "score": 0.0, "turns": 0.0, "clean": 0.0}
    return {
        "reward": sum(each.reward for each in outcomes) / asked,
        "score": sum(each.score for each in outcomes) / asked,
        "turns": statistics.fmean(each.turns for each in outcomes),
        "clean": sum(each.is_clean for each in outcomes) / asked,
    }
