"""Positions as the engine counts them, for a trainer that leaves them to the model.

TRL pads prompts on the left and says no positions, so the model counts the padding, too. Rotary embeddings only know
distances, so nothing is wrong; but the sines of other angles are rounded otherwise, and where attention is sharp that
moves a log-probability by up to 1e-4 in float32. Counted from the first token, it is about 1e-5.
"""

from __future__ import annotations

from typing import Any

from transformers import AutoModelForCausalLM


class CausalModel:
    """`AutoModelForCausalLM`, with a hook in front of its forward pass. The model itself is unchanged."""

    @classmethod
    def from_pretrained(cls, *given: Any, **named: Any) -> Any:
        """As transformers' own."""
        model = AutoModelForCausalLM.from_pretrained(*given, **named)
        model.register_forward_pre_hook(_count_from_the_first_token, with_kwargs=True)
        return model


def _count_from_the_first_token(model: Any, given: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    del model
    mask = named.get("attention_mask")
    if mask is None or named.get("position_ids") is not None:
        return given, named
    return given, {**named, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
