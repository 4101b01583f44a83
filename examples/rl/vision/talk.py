"""An episode as the model reads it: the text of each turn, as the chat template and the agent's messages make it."""

from __future__ import annotations

import json

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
END = "<|im_end|>"
TURN = "<|im_start|>assistant\n"
HEAD = f"<|im_start|>system\nTools: click(x, y) type(text) done(){END}\n"


def opening(instruction: str) -> str:
    """All before the first answer; the first screenshot stands behind the instruction."""
    return f"{HEAD}<|im_start|>user\n{instruction}{IMAGE}{END}\n{TURN}"


def call(name: str, **arguments: object) -> str:
    """An answer that calls a tool."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>{END}"


def following(result: str) -> str:
    """What comes between two answers: what the tool said, and the next screenshot."""
    return (
        f"\n<|im_start|>user\n<tool_response>\n{result}\n</tool_response>{END}\n<|im_start|>user\n{IMAGE}{END}\n{TURN}"
    )
