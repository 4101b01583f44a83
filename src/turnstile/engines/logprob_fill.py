"""The log-probability of a sampled token for which llama.cpp gives none, from the row it was sampled from.

The row is asked for again behind the same ids, so the number is that of the distribution that was sampled from:
exact where that is softmax(logits / temperature), or the model's own.

Source: docs/decisions/0003-llamacpp-exact-streaming.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from turnstile.engines.llamacpp_shapes import Candidate

FIRST_ENTRIES = 1024
"""How many of the likeliest tokens are asked for first; costs about 20 ms, the whole row of 49k about 700 ms."""
_TAIL_SHARE = 1e-6
"""How much of the normaliser may lie outside a partial row: below what float32 resolves in a logarithm."""


def filled(row: Sequence[Candidate], token_id: int, temperature: float, vocab_size: int) -> float | None:
    """Log-probability of a token under softmax(logits / temperature), from a row of raw log-probabilities.

    None if the row does not hold the token, or leaves out tokens that could weigh more than float32 resolves.
    Shapes: row [K], K <= vocab_size, sorted from the likeliest.
    """
    logprobs = [entry.logprob for entry in row if entry.logprob is not None]
    own = next((entry.logprob for entry in row if entry.id == token_id), None)
    if own is None or not logprobs:
        return None
    # Shifted by the largest, so that no power overflows; llama.cpp's numbers have a constant error, which cancels.
    top = max(logprobs)
    total = math.fsum(math.exp((value - top) / temperature) for value in logprobs)
    left_out = (vocab_size - len(row)) * math.exp((min(logprobs) - top) / temperature)
    if left_out > _TAIL_SHARE * total:
        return None
    return min(0.0, (own - top) / temperature - math.log(total))


def listed(row: Sequence[Candidate], token_id: int) -> float | None:
    """The model's own log-probability of a token, as the row says it; None if it is not listed."""
    return next((entry.logprob for entry in row if entry.id == token_id), None)
