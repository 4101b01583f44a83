"""The wrong way, for comparison: rows as a recorder of text would make them.

Its messages are rendered through the model's own chat template and tokenized as a whole; an assistant's turns are found
by their place in the text and trained. There are no recorded log-probabilities for such tokens, so the trainer takes
its own (a ratio of 1), which is what text-level pipelines do. Nothing is wrong about its rewards or its weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnstile.trajectory.format import Rollout, Sequence


@dataclass(frozen=True)
class Rerendered:
    """One conversation, tokenized again. Shapes: T ids, T marks."""

    token_ids: list[int]
    is_trained: list[bool]

    @property
    def prompt_length(self) -> int:
        """Tokens before the first trained one."""
        return self.is_trained.index(True) if True in self.is_trained else len(self.token_ids)


@dataclass(frozen=True)
class Drift:
    """How some rollouts differ from what a recorder of text would have."""

    rollouts: int
    differing: int
    sampled: int
    wrong: int
    """Sampled tokens at or behind a rollout's first difference."""


def rerender(rollout: Rollout, sequence: Sequence, tokenizer: Any) -> Rerendered:
    """Tokenize a sequence's messages anew."""
    messages = [_with_objects(rollout.messages[index]) for index in sequence.messages]
    tools_index = rollout.heads[sequence.head].tools
    tools = None if tools_index is None else list(rollout.tools[tools_index])

    def text_of(count: int, *, opens: bool) -> str:
        return str(
            tokenizer.apply_chat_template(messages[:count], tools=tools, tokenize=False, add_generation_prompt=opens)
        )

    whole = text_of(len(messages), opens=False).removesuffix("\n")
    spans = [
        (len(text_of(index, opens=True)), len(text_of(index + 1, opens=False).removesuffix("\n")))
        for index, message in enumerate(messages)
        if message["role"] == "assistant"
    ]
    encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
    trained = [any(start <= begin < end for start, end in spans) for begin, _ in encoded["offset_mapping"]]
    return Rerendered(list(encoded["input_ids"]), trained)


def row_of(rollout: Rollout, sequence: Sequence, tokenizer: Any) -> dict[str, Any]:
    """A row for TRL, made of text."""
    made = rerender(rollout, sequence, tokenizer)
    cut = made.prompt_length if made.prompt_length < len(made.token_ids) else len(made.token_ids) - 1
    return {
        "prompt_ids": made.token_ids[:cut],
        "completion_ids": made.token_ids[cut:],
        "logprobs": [math.nan] * (len(made.token_ids) - cut),
        "env_mask": [int(each) for each in made.is_trained[cut:]],
        "turnstile_reward": rollout.reward,
        "rollout_id": rollout.rollout_id,
    }


def drift_of(rollouts: list[tuple[Rollout, Sequence]], tokenizer: Any) -> Drift:
    """Compare the held ids with the re-rendered ones."""
    differing = sampled = wrong = 0
    for rollout, sequence in rollouts:
        kept = kept_places(sequence)
        held = [int(sequence.token_ids[at]) for at in kept]
        made = rerender(rollout, sequence, tokenizer).token_ids
        drawn = {at for each in sequence.segments if each.kind == "sampled" for at in range(each.start, each.end)}
        places = [index for index, at in enumerate(kept) if at in drawn]
        sampled += len(places)
        if held != made:
            differing += 1
            pairs = enumerate(zip(held, made, strict=False))
            first = next((at for at, (ours, theirs) in pairs if ours != theirs), min(len(held), len(made)))
            wrong += sum(at >= first for at in places)
    return Drift(len(rollouts), differing, sampled, wrong)


def kept_places(sequence: Sequence) -> list[int]:
    """Positions of a sequence, of each image's run of placeholders only the first: a template prints one."""
    more = {at for each in sequence.media for at in range(each.offset + 1, each.offset + each.length)}
    return [at for at in range(len(sequence.token_ids)) if at not in more]


def _with_objects(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates want it: the arguments of its calls as objects."""
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    return {**message, "tool_calls": [_with_object(each) for each in calls]}


def _with_object(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except (TypeError, ValueError):
        arguments = function["arguments"]
    return {**call, "function": {**function, "arguments": arguments}}
