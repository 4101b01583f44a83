"""What a log-probability of vLLM means, by how its server was started and by the draw.

Source: vLLM 0.32.0, `v1/sample/sampler.py` and `v1/worker/gpu_model_runner.py`. `raw_logprobs` are taken from the
logits before temperature, penalties, bias and filters, but behind a grammar's mask, which is laid on the logits
before the sampler sees them. `processed_logprobs` are taken behind everything; at temperature 0 nothing is divided.
"""

from __future__ import annotations

import msgspec

from turnstile.conversation import ToolMode
from turnstile.engines.vllm_door import COLDEST
from turnstile.generation import Draw, Free, LogprobsMode, Prompt


class Meaning(msgspec.Struct, frozen=True):
    """Which distribution numbers belong to."""

    mode: LogprobsMode
    temperature: float | None
    """The one inside the numbers; None = unknown."""


_UNKNOWN = Meaning(LogprobsMode.UNKNOWN, None)


def is_constrained(prompt: Prompt, draw: Draw) -> bool:
    """Whether a schema, a grammar or a call that the server enforces holds the answer."""
    is_forced = prompt.read_with not in (None, ToolMode.AUTO, ToolMode.NONE)
    return is_forced or not isinstance(draw.constraint, Free)


def meaning(measured: LogprobsMode, prompt: Prompt, draw: Draw) -> Meaning:
    """What the numbers of a draw are.

    Args:
        measured: what the server was seen to answer: `raw`, `processed` or `unknown`.
        prompt: what the ids follow.
        draw: how they are sampled.
    """
    if measured not in (LogprobsMode.RAW, LogprobsMode.PROCESSED):
        return _UNKNOWN
    is_held = is_constrained(prompt, draw)
    if draw.temperature <= 0:
        is_touched = is_held or (measured is LogprobsMode.PROCESSED and _is_shifted(draw))
        return _UNKNOWN if is_touched else Meaning(LogprobsMode.RAW, 1.0)
    if measured is LogprobsMode.PROCESSED:
        return Meaning(LogprobsMode.PROCESSED, max(draw.temperature, COLDEST))
    if not is_held:
        return Meaning(LogprobsMode.RAW, 1.0)
    # Masked but not divided: at temperature 1 without filters that is the very distribution that was sampled from.
    is_all = draw.temperature == 1.0 and msgspec.structs.replace(draw, constraint=Free()).is_unfiltered
    return Meaning(LogprobsMode.PROCESSED, 1.0) if is_all else _UNKNOWN


def constrained_note(numbers: Meaning) -> str:
    """What is recorded of a call whose answer a grammar or schema held."""
    if numbers.mode is LogprobsMode.PROCESSED:
        return "the recorded numbers are those of the constrained distribution"
    return "the recorded numbers hold the constraint and not the rest of what was sampled with"


def _is_shifted(draw: Draw) -> bool:
    """Whether some ids were made likelier than the model finds them, filters apart."""
    return bool(draw.presence_penalty or draw.frequency_penalty or draw.repetition_penalty != 1.0 or draw.logit_bias)
