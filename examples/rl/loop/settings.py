"""The one file that a run is made of: TOML in, frozen dataclasses out. A name that is not known is refused."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class ModelSettings:
    """Where the model comes from."""

    folder: str = ""
    """As `save_pretrained` writes it, with its tokenizer; empty: `warm_start` makes one."""
    warm_start: str = ""
    """Module that is run as `python -m MODULE FOLDER SEED`."""
    seed: int = 0
    """Of the warm start; the same model for all runs."""
    arguments: tuple[str, ...] = ()
    """More of the warm start's command line."""
    inputs: tuple[str, ...] = ()
    """Files, below examples/rl, whose contents decide whether a model that was made before can be used."""
    name: str = "policy"
    """What agents call it."""


@dataclass(frozen=True)
class EngineSettings:
    """What samples."""

    command: tuple[str, ...] = ()
    """Starts one; `{python}`, `{rl}` (the folder of it all), `{model}`, `{port}` and `{seed}` are filled in.

    Empty: `address` is used.
    """
    address: str = ""
    """Of an engine that runs already."""
    kind: str = "auto"
    """Of the adapter in Turnstile: its `--engine-kind`."""
    update: Literal["token_server", "vllm"] = "token_server"
    """How new weights are told: `POST /update_weights {path, version}`, or vLLM's own routes."""
    patience_s: float = 300.0
    """For it to be ready."""


@dataclass(frozen=True)
class ServeSettings:
    """Turnstile itself."""

    options: tuple[str, ...] = ()
    """More of `turnstile serve`."""


@dataclass(frozen=True)
class TrainSettings:
    """What is learnt, and how."""

    steps: int = 60
    prompts: int = 8
    """In a step."""
    generations: int = 8
    """Rollouts of a prompt."""
    rows_at_once: int = 64
    """In one forward pass; fewer accumulate gradients."""
    learning_rate: float = 1.5e-4
    warmup_steps: int = 3
    adam_beta2: float = 0.99
    max_completion_length: int = 512
    """The constant by which `dr_grpo` divides a sequence's sum; nothing is cut."""
    save_every: int = 10
    is_on_gpu: bool = False
    is_bfloat16: bool = False
    threads: int = 1
    extra: dict[str, Any] = field(default_factory=dict)
    """More of `GRPOConfig`."""


@dataclass(frozen=True)
class AgentSettings:
    """Who works."""

    at_once: int = 32
    one_sequence: Literal["refuse", "longest", "last"] = "longest"
    """Which one is trained on where an agent's history forks."""
    images: Literal["refuse", "apart"] = "refuse"
    """Whether rows may have images, which the world's own trainer then takes by another way."""


@dataclass(frozen=True)
class EvaluateSettings:
    """Held-out tasks, through the same agent and server, never trained on."""

    every: int = 3
    """Steps between two at temperature 1."""
    greedy_every: int = 12
    """Steps between two at temperature 0; the last step has one in any case."""
    tasks: int = 64


@dataclass(frozen=True)
class LimitSettings:
    """What ends a run as wrong."""

    logprob_difference: float = 1e-4
    """Largest that a recorded log-probability may differ from the trainer's own."""


@dataclass(frozen=True)
class Settings:
    """All of it."""

    world: str
    """Module with `make_world`."""
    options: dict[str, Any]
    """The world's own."""
    model: ModelSettings
    engine: EngineSettings
    serve: ServeSettings
    train: TrainSettings
    agents: AgentSettings
    evaluate: EvaluateSettings
    limits: LimitSettings


_TABLES: dict[str, Any] = {
    "model": ModelSettings,
    "engine": EngineSettings,
    "serve": ServeSettings,
    "train": TrainSettings,
    "agents": AgentSettings,
    "evaluate": EvaluateSettings,
    "limits": LimitSettings,
}


def _table(name: str, given: dict[str, Any]) -> Any:
    known = {each.name for each in fields(_TABLES[name])}
    if strangers := sorted(set(given) - known):
        raise SystemExit(f"[{name}] {strangers[0]} is no setting; there are {', '.join(sorted(known))}")
    return _TABLES[name](**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()})


def read_settings(path: Path, changes: dict[str, str]) -> Settings:
    """The settings of a file, with `table.name` changed to what TOML makes of a text, or to the text itself.

    Raises: SystemExit naming a table or setting that is not known.
    """
    said = tomllib.loads(path.read_text(encoding="utf-8"))
    for place, text in changes.items():
        table, _, name = place.partition(".")
        said.setdefault(table, {})[name] = _value(text)
    world, options = said.pop("world"), said.pop("options", {})
    if strangers := sorted(set(said) - set(_TABLES)):
        raise SystemExit(f"{path}: [{strangers[0]}] is no table; there are {', '.join(_TABLES)}")
    return Settings(world=world, options=options, **{name: _table(name, said.get(name, {})) for name in _TABLES})


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
