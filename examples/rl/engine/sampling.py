"""How one token is drawn for each row of a batch, and what its log-probability means.

The number that is returned is log-softmax(logits / temperature) of the drawn id, in float32: what a trainer computes
that divides its logits by the same temperature. `top_p` narrows what is drawn from and is not in the number.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch

BANNED = -1e9
"""The logit of an id that cannot be drawn: finite, so that 0 * log 0 is 0 in a trainer's entropy."""


@dataclass(frozen=True)
class Sampling:
    """How to draw the tokens of one answer."""

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    banned_ids: tuple[int, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def logprobs_mode(self) -> str:
        """Which distribution the numbers are of, in the words of docs/reference/engine-wire.md."""
        if not self.banned_ids and not self.logit_bias:
            return "temperature" if self.temperature > 0 else "raw"
        # Bias and bans of the request are in the number, the filter is not.
        return "processed" if self.temperature > 0 and self.top_p == 1.0 else "unknown"

    @property
    def divisor(self) -> float:
        """The temperature inside the numbers: at 0 the likeliest token is taken, and nothing is divided."""
        return self.temperature if self.temperature > 0 else 1.0


@dataclass
class Dice:
    """The sampling of one answer and its own stream of random numbers, so that a seed names an answer.

    One number in [0, 1) is drawn for each token, whatever else is in the batch.
    """

    sampling: Sampling
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.sampling.seed)

    def roll(self) -> float:
        return self._random.random()


def ban(model: torch.nn.Module, ids: tuple[int, ...]) -> None:
    """Make a model give no probability to some ids: placeholders of images, say.

    A part of the model from then on. Call it on the engine's model and on the trainer's: the two then compute the same.
    """
    if not ids:
        return

    def without(_head: torch.nn.Module, _inputs: object, logits: torch.Tensor) -> torch.Tensor:
        return logits.index_fill(-1, torch.tensor(ids, device=logits.device), BANNED)

    model.get_output_embeddings().register_forward_hook(without)


def draw(logits_BV: torch.Tensor, dice: list[Dice]) -> tuple[list[int], list[float]]:
    """One id for each row, and its log-probability.

    Args:
        logits_BV: float32[B, V], changed in place.
        dice: one for each row.
    """
    device = logits_BV.device
    samplings = [each.sampling for each in dice]
    _shift(logits_BV, samplings)
    divisors_B = torch.tensor([each.divisor for each in samplings], device=device)
    logprobs_BV = torch.log_softmax(logits_BV / divisors_B[:, None], dim=-1)
    ids_B = _drawn(logprobs_BV, dice)
    if any(each.temperature == 0 for each in samplings):
        is_greedy_B = torch.tensor([each.temperature == 0 for each in samplings], device=device)
        ids_B = torch.where(is_greedy_B, logits_BV.argmax(-1), ids_B)
    return ids_B.tolist(), logprobs_BV.gather(1, ids_B[:, None])[:, 0].tolist()


def _shift(logits_BV: torch.Tensor, samplings: list[Sampling]) -> None:
    for row, sampling in enumerate(samplings):
        for token_id, bias in sampling.logit_bias:
            logits_BV[row, token_id] += bias
        if sampling.banned_ids:
            logits_BV[row, list(sampling.banned_ids)] = BANNED


def _drawn(logprobs_BV: torch.Tensor, dice: list[Dice]) -> torch.Tensor:
    """Where each row's random number falls in its cumulative distribution; double precision, for large vocabularies."""
    probs_BV = logprobs_BV.double().exp()
    if any(each.sampling.top_p < 1 for each in dice):
        probs_BV = _nucleus(probs_BV, [each.sampling.top_p for each in dice])
    cumulative_BV = probs_BV.cumsum(-1)
    rolls_B = torch.tensor([each.roll() for each in dice], dtype=torch.float64, device=probs_BV.device)
    # The first id whose cumulative probability is above the number: never one of probability 0.
    found_B = torch.searchsorted(cumulative_BV, rolls_B[:, None] * cumulative_BV[:, -1:], right=True)[:, 0]
    return torch.where(found_B < probs_BV.shape[1], found_B, probs_BV.argmax(-1))


def _nucleus(probs_BV: torch.Tensor, top_p: list[float]) -> torch.Tensor:
    """The likeliest ids that together reach `top_p`, all others at 0."""
    sorted_BV, order_BV = probs_BV.sort(-1, descending=True)
    limits_B = torch.tensor(top_p, dtype=probs_BV.dtype, device=probs_BV.device)
    reached_before_BV = sorted_BV.cumsum(-1) - sorted_BV
    kept_BV = sorted_BV.masked_fill(reached_before_BV >= limits_B[:, None], 0.0)
    return torch.zeros_like(probs_BV).scatter(-1, order_BV, kept_BV)
