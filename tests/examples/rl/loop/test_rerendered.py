"""What a recorder of text makes of a conversation, with a real tokenizer and the agent's own template."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from loop.rerendered import drift_of, rerender, row_of

TEMPLATE = Path(__file__).parents[4] / "examples" / "rl" / "text" / "chat_template.jinja"
SPECIALS = ["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
TOOLS = ({"type": "function", "function": {"name": "run", "parameters": {"properties": {"path": {}}}}},)
SPACED, COMPACT = '{"path": "a"}', '{"path":"a"}'


class TemplatedTokenizer:
    """The two methods of a transformers tokenizer that are used."""

    def __init__(self) -> None:
        self.raw = Tokenizer(models.BPE())
        self.raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.raw.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        self.raw.train_from_iterator([], trainers.BpeTrainer(special_tokens=SPECIALS, initial_alphabet=alphabet))
        environment = jinja2.Environment()
        environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
        environment.filters["tojson"] = json.dumps
        self._template = environment.from_string(TEMPLATE.read_text())

    def apply_chat_template(self, messages: list[Any], **named: Any) -> str:
        return self._template.render(messages=messages, **named)

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        encoded = self.raw.encode(text, add_special_tokens=False)
        return {"input_ids": encoded.ids, "offset_mapping": encoded.offsets}


@pytest.fixture(scope="module")
def tokenizer() -> TemplatedTokenizer:
    return TemplatedTokenizer()


def conversation(tokenizer: TemplatedTokenizer, arguments: str) -> tuple[Any, Any]:
    """A call, its result and an answer, as they were sampled: the call's arguments in the model's own spelling."""
    call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": arguments}}
    messages = (
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
        {"role": "assistant", "content": "Done."},
    )
    pieces = (
        "<|im_start|>system\nTools: run(path)<|im_end|>\n<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n",
        f'<tool_call>\n{{"name": "run", "arguments": {arguments}}}\n</tool_call><|im_end|>',
        "\n<|im_start|>user\n<tool_response>\nok\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
        "Done.<|im_end|>",
    )
    ids: list[int] = []
    segments: list[Any] = []
    for piece, kind in zip(pieces, ("prompt", "sampled", "observation", "sampled"), strict=True):
        found = tokenizer(piece)["input_ids"]
        segments.append(SimpleNamespace(kind=kind, start=len(ids), end=len(ids) + len(found)))
        ids += found
    sequence = SimpleNamespace(messages=(0, 1, 2, 3), head=0, token_ids=ids, segments=tuple(segments), media=())
    heads = (SimpleNamespace(tools=0),)
    rollout = SimpleNamespace(messages=messages, heads=heads, tools=(TOOLS,), reward=0.5, rollout_id="ro-1")
    return rollout, sequence


def test_an_answer_in_the_templates_own_spelling_comes_back_as_it_was(tokenizer: TemplatedTokenizer) -> None:
    rollout, sequence = conversation(tokenizer, SPACED)
    made = rerender(rollout, sequence, tokenizer)
    assert made.token_ids == sequence.token_ids
    sampled = [at for each in sequence.segments if each.kind == "sampled" for at in range(each.start, each.end)]
    assert [at for at, is_trained in enumerate(made.is_trained) if is_trained] == sampled


def test_compact_arguments_become_other_ids(tokenizer: TemplatedTokenizer) -> None:
    rollout, sequence = conversation(tokenizer, COMPACT)
    made = rerender(rollout, sequence, tokenizer)
    assert made.token_ids == conversation(tokenizer, SPACED)[1].token_ids
    assert len(made.token_ids) == len(sequence.token_ids) + 1


def test_drift_counts_rollouts_that_differ_and_sampled_tokens_from_there_on(tokenizer: TemplatedTokenizer) -> None:
    both = [conversation(tokenizer, SPACED), conversation(tokenizer, COMPACT)]
    _, call, _, answer = both[1][1].segments
    drift = drift_of(both, tokenizer)
    assert (drift.rollouts, drift.differing) == (2, 1)
    # One byte a token; the missing blank stands behind the name and its colon.
    before = len(tokenizer('<tool_call>\n{"name": "run", "arguments": {"path":')["input_ids"])
    assert drift.wrong == (call.end - call.start) - before + (answer.end - answer.start)


def test_a_row_of_text_has_no_recorded_numbers(tokenizer: TemplatedTokenizer) -> None:
    rollout, sequence = conversation(tokenizer, COMPACT)
    row = row_of(rollout, sequence, tokenizer)
    assert all(math.isnan(each) for each in row["logprobs"])
    assert len(row["logprobs"]) == len(row["completion_ids"]) == len(row["env_mask"])
    assert row["env_mask"][0] == 1
    assert (row["turnstile_reward"], row["rollout_id"]) == (0.5, "ro-1")
