"""One run: an engine, Turnstile, agents, and TRL's GRPOTrainer, from a settings file to a curve.

python -m loop.train text/text.toml --out FOLDER --seed 1 [--resume] [--history rerendered] [--set train.steps=3]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import torch
from datasets import Dataset
from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig

from loop.checks import check_counts, check_difference, check_engine, hashes_of
from loop.clients import PatientClient
from loop.metrics import Metrics
from loop.processes import Servers
from loop.rollouts import History, Source
from loop.settings import Settings, read_settings
from loop.warm import model_folder
from loop.worlds import TrainerParts, make_world, trainer_parts
from push import Pusher, TokenServerPusher, VllmPusher
from turnstile.integrations.trl import reward

LOGGED = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "entropy": "entropy",
    "reward": "trainer_reward",
    "sampling/sampling_logp_difference/mean": "difference_mean",
    "sampling/sampling_logp_difference/max": "difference_max",
    "sampling/importance_sampling_ratio/mean": "importance_ratio",
}
"""TRL's name of a figure to ours."""
SHARED_MEMORY = Path("/dev/shm")


class Run:
    """What the steps of a run share."""

    def __init__(self, settings: Settings, source: Source, pusher: Pusher, metrics: Metrics, seed: int) -> None:
        self._settings = settings
        self._source = source
        self._pusher = pusher
        self._metrics = metrics
        self._seed = seed
        self._pushed_s = 0.0
        self._held_out = source.world.held_out_prompts()[: settings.evaluate.tasks]
        self.trainer: Any = None

    def push(self) -> None:
        """Give the trainer's weights to the engine, and their version to Turnstile. TRL calls it before rollouts."""
        version = int(self.trainer.state.global_step)
        began = time.monotonic()
        memory = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        with tempfile.TemporaryDirectory(prefix="weights-", dir=memory) as place:
            folder = Path(place)
            self.trainer.accelerator.unwrap_model(self.trainer.model).save_pretrained(folder)
            self._pusher.push(folder, version)
        self._source.client.announce_policy(version, label=str(version))
        self._pushed_s = time.monotonic() - began

    def evaluate(self, step: int, *, is_last: bool = False) -> None:
        """Play the held-out tasks with the weights of a step, if it is time."""
        every, greedy_every = self._settings.evaluate.every, self._settings.evaluate.greedy_every
        if step % every and not is_last:
            return
        began = time.monotonic()
        figures = self._source.evaluate(f"held-out-{self._seed}-{step}", 1.0, self._held_out)
        if step % greedy_every == 0 or is_last:
            greedy = self._source.evaluate(f"held-out-greedy-{self._seed}-{step}", 0.0, self._held_out)
            figures |= {f"greedy_{name}": value for name, value in greedy.items()}
        self._metrics.say("evaluation", step, {**figures, "wall_s": time.monotonic() - began})

    def stepped(self, step: int, logged: dict[str, float], wall_s: float) -> None:
        """Check a step that was taken, and keep what is known of it."""
        counted = self.counted_by_loss()
        ours = {LOGGED[name]: value for name, value in logged.items() if name in LOGGED}
        figures = {
            **self._source.figures,
            **ours,
            "version": step - 1,
            "exported_tokens": self._source.exported,
            "trained_tokens": counted,
            "push_s": self._pushed_s,
            "wall_s": wall_s,
        }
        self._metrics.say("step", step, figures)
        check_counts(self._source.exported, counted)
        if self._source.history == "exact":
            check_difference(ours["difference_max"], self._settings.limits.logprob_difference)

    def counted_by_loss(self) -> int:
        """Tokens under the loss's mask, in the tensors that TRL made of the rows of this step."""
        count = 0
        for batch in self.trainer._buffered_inputs:
            mask = batch["completion_mask"]
            count += int((mask * batch["tool_mask"]).sum() if "tool_mask" in batch else mask.sum())
        return count


class Steps(TrainerCallback):
    """Tells the run of each step, and counts its time."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._began = time.monotonic()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """TRL makes the rollouts behind this call."""
        self._began = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """After each step, with its figures; once more at the end of all, without."""
        if logs and "loss" in logs:
            self._run.stepped(int(state.global_step), logs, time.monotonic() - self._began)


def grpo_config(settings: Settings, folder: Path, seed: int) -> GRPOConfig:
    """The trainer's settings; docs/train/trl.md says what each is for."""
    train = settings.train
    rows = train.prompts * train.generations
    accumulated = rows // train.rows_at_once
    return GRPOConfig(
        output_dir=str(folder / "trainer"),
        use_cpu=not train.is_on_gpu,
        bf16=train.is_bfloat16,
        seed=seed,
        report_to="none",
        disable_tqdm=True,
        logging_steps=1,
        save_strategy="steps",
        save_steps=train.save_every,
        save_total_limit=2,
        per_device_train_batch_size=train.rows_at_once,
        gradient_accumulation_steps=accumulated,
        steps_per_generation=accumulated,
        num_generations=train.generations,
        max_steps=train.steps,
        max_completion_length=train.max_completion_length,
        learning_rate=train.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=train.warmup_steps,
        adam_beta2=train.adam_beta2,
        beta=0.0,
        temperature=1.0,
        loss_type="dr_grpo",
        scale_rewards="none",
        gradient_checkpointing=False,
        shuffle_dataset=False,
        **train.extra,
    )


@dataclass(frozen=True)
class Loaded:
    """What the trainer has of the model."""

    folder: Path
    parts: TrainerParts
    model: Any
    processor: Any


def load(settings: Settings) -> Loaded:
    """The model that a run begins with."""
    folder, parts = model_folder(settings.model), trainer_parts(settings.world)
    dtype = torch.bfloat16 if settings.train.is_bfloat16 else torch.float32
    processor = parts.processor.from_pretrained(folder)
    getattr(processor, "tokenizer", processor).padding_side = "left"
    return Loaded(folder, parts, parts.model.from_pretrained(folder, dtype=dtype), processor)


def make_trainer(loaded: Loaded, config: GRPOConfig, source: Source, prompts: list[str]) -> Any:
    """TRL's trainer, to whom Turnstile is a `rollout_func`."""
    trainer = loaded.parts.trainer(
        model=loaded.model,
        processing_class=loaded.processor,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        reward_funcs=[reward],
        rollout_func=source,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def attach(trainer: Any, run: Run) -> None:
    """Let the recorded log-probabilities count, as with an engine of vLLM's, and weights go to ours."""
    run.trainer = trainer
    trainer.use_vllm = True
    trainer.vllm_generation = SimpleNamespace(sync_weights=run.push)
    trainer._last_loaded_step = -1
    trainer.add_callback(Steps(run))


def pusher_of(settings: Settings, url: str, model: Path) -> Pusher:
    """How this engine takes weights."""
    return VllmPusher(url, model) if settings.engine.update == "vllm" else TokenServerPusher(url)


@dataclass(frozen=True)
class Asked:
    """The command line."""

    folder: Path
    seed: int
    history: History
    checkpoint: str | None

    @property
    def resumed_at(self) -> int | None:
        """The checkpoint's step; None for a new run."""
        return int(self.checkpoint.rpartition("-")[2]) if self.checkpoint else None

    @property
    def engine_seed(self) -> int:
        """Another one for each start, so that a resumed run does not draw again what its first part drew."""
        return random.Random(f"{self.seed} {self.resumed_at}").randrange(2**31)


def train(settings: Settings, asked: Asked) -> None:
    """A whole run. Raises: RunIsWrong as soon as it trains on something else than what was sampled."""
    torch.set_num_threads(settings.train.threads)
    loaded, world = load(settings), make_world(settings.world, settings.options)
    name = f"{asked.folder.name} seed {asked.seed}"
    metrics = Metrics(asked.folder, name, settings.train.steps, asked.resumed_at)
    with Servers(settings, loaded.folder, asked.folder, asked.engine_seed) as servers, metrics:
        hashes = hashes_of(loaded.folder, loaded.model)
        if (
            settings.engine.update == "token_server"
        ):  # vLLM tells no hashes; a wrong model shows in the first step's numbers
            check_engine(servers.engine_url, hashes)
        said = {"seed": asked.seed, "history": asked.history, "pid": os.getpid(), **hashes}
        said |= {"url": servers.url, "turnstile_pid": servers.turnstile.pid, "model": str(loaded.folder)}
        (asked.folder / "run.json").write_text(json.dumps(said), encoding="utf-8")
        source = Source(
            client=PatientClient(servers.url),
            world=world,
            settings=settings,
            tokenizer=getattr(loaded.processor, "tokenizer", loaded.processor),
            tokenizer_sha256=hashes["tokenizer_sha256"],
            history=asked.history,
            before=lambda step: run.evaluate(step),
        )
        run = Run(settings, source, pusher_of(settings, servers.engine_url, loaded.folder), metrics, asked.seed)
        prompts = world.train_prompts(asked.seed, settings.train.steps * settings.train.prompts)
        trainer = make_trainer(loaded, grpo_config(settings, asked.folder, asked.seed), source, prompts)
        attach(trainer, run)
        try:
            trainer.train(resume_from_checkpoint=asked.checkpoint)
            run.push()
            run.evaluate(settings.train.steps, is_last=True)
            trainer.save_model(str(asked.folder / "model"))
        finally:
            world.close()
        ended = {"restarts": servers.turnstile.restarts, "waits": source.client.waits}
        metrics.say("end", settings.train.steps, ended)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of this run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    parser.add_argument("--history", choices=get_args(History), default="exact")
    parser.add_argument("--set", action="append", default=[], metavar="TABLE.NAME=VALUE", help="change a setting")
    said = parser.parse_args()
    changes = dict(each.partition("=")[::2] for each in said.set)
    said.out.mkdir(parents=True, exist_ok=True)
    trained = said.out / "trainer"
    checkpoint = get_last_checkpoint(str(trained)) if said.resume and trained.is_dir() else None
    train(read_settings(said.settings, changes), Asked(said.out, said.seed, said.history, checkpoint))


if __name__ == "__main__":
    main()
