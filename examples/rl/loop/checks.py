"""What must hold in every step, or the run ends: versions, counts, log-probabilities, and one tokenizer and model."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from loop.processes import ask
from turnstile.trajectory.format import Rollout, Sequence

ENGINE = Path(__file__).parents[1] / "engine"


class RunIsWrong(Exception):
    """Training on would be training on something else than what was sampled."""


def trained_tokens(sequence: Sequence) -> int:
    """Sampled tokens of a sequence that a loss may count."""
    return sum(segment.end - segment.start for segment in sequence.segments if segment.trainable)


def check_versions(rollouts: Iterable[Rollout], version: int) -> None:
    """Every token that may be trained was drawn by these weights. Raises: RunIsWrong naming the first that was not."""
    for rollout in rollouts:
        for sequence in rollout.sequences:
            for segment in sequence.segments:
                found = (segment.policy_version_min, segment.policy_version_max)
                if segment.trainable and found != (version, version):
                    raise RunIsWrong(
                        f"{sequence.sequence_id} [{segment.start}, {segment.end}) was drawn by version {found[0]} to "
                        f"{found[1]}, and the policy is at {version}"
                    )


def check_rows(rollouts: list[Rollout], masks: list[list[int]]) -> int:
    """Each row trains one of its rollout's sequences, token for token.

    Returns: the export's count of trained tokens. Raises: RunIsWrong.
    """
    total = 0
    for rollout, mask in zip(rollouts, masks, strict=True):
        counts = [trained_tokens(sequence) for sequence in rollout.sequences] or [0]
        if sum(mask) and sum(mask) not in counts:
            raise RunIsWrong(f"{rollout.rollout_id} has {counts} tokens to train, and its row {sum(mask)}")
        total += sum(mask)
    return total


def check_counts(exported: int, trained: int) -> None:
    """The loss counted as many tokens as the export has. Raises: RunIsWrong."""
    if exported != trained:
        raise RunIsWrong(f"{exported} tokens were exported to be trained, and the loss counts {trained}")


def check_difference(largest: float, limit: float) -> None:
    """The trainer's own log-probabilities are the recorded ones. Raises: RunIsWrong."""
    if not largest < limit:
        raise RunIsWrong(f"A recorded log-probability differs from the trainer's own by {largest:.2g}, over {limit:g}")


def hashes_of(folder: Path, model: Any) -> dict[str, str]:
    """What the trainer holds: its tokenizer and, to the last bit, its weights."""
    return {
        "tokenizer_sha256": hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest(),
        "model_sha256": weights_sha256(model),
    }


def check_engine(engine_url: str, ours: dict[str, str]) -> None:
    """The engine holds the same. Raises: RunIsWrong naming what differs."""
    info = ask(f"{engine_url}/info")
    for name, value in ours.items():
        if info[name] != value:
            raise RunIsWrong(f"The engine's {name} is {info[name]}, and the trainer's {value}")


def check_proxy(rollout: Rollout, tokenizer_sha256: str) -> None:
    """The proxy rendered with the same tokenizer. Raises: RunIsWrong."""
    for head in rollout.heads:
        if head.tokenizer_sha256 != tokenizer_sha256:
            raise RunIsWrong(f"The proxy's tokenizer is {head.tokenizer_sha256}, and the trainer's {tokenizer_sha256}")


def weights_sha256(model: Any) -> str:
    """The engine's own hash of a model, on the trainer's."""
    spec = importlib.util.spec_from_file_location("engine_weights", ENGINE / "weights.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.weights_sha256(model))
