"""Make the coding agent's small model: a tokenizer, 0.77 million parameters, and habits worth breaking.

python -m text.warm_start FOLDER SEED [STEPS]       a few minutes on one core; the same files for the same seed

First it learns what words mean, from careful demonstrations; then its behaviour is spoilt by sloppy ones, until it
solves about a third of the held-out tasks. Reinforcement at this size re-weights what a model can do; it does not
teach it to read.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, pre_tokenizers
from transformers import Qwen3Config, Qwen3ForCausalLM

from loop.making import Course, Language, whole
from text.agent import MAX_TOKENS, MAX_TURNS, call, tools_of
from text.demonstrations import CAREFUL, END, HEAD, SLOPPY, TURN, Manner, Piece, demonstrate
from text.sandbox import Sandbox
from text.tasks import HELD_OUT, Task, held_out_tasks, train_tasks, write_repository

VOCABULARY = 640
SPECIALS = ("<|endoftext|>", "<|im_start|>", END, "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
DEMONSTRATIONS = 4000
"""Of each manner."""
BATCH = 12
READ_WEIGHT = 0.2
CONTEXT = 2048
LANGUAGE = Language(Path(__file__).with_name("chat_template.jinja"), VOCABULARY, SPECIALS, END, CONTEXT)
STEPS = 10_000
"""Of each stage at most, where the command line says nothing."""


def make_tokenizer(texts: list[str]) -> Tokenizer:
    """A byte-level BPE with ChatML's and the tool calls' tokens; words, digits and what is between them stay apart."""
    apart = pre_tokenizers.Split(Regex(r" ?[A-Za-z_]+|\d| ?[^A-Za-z\d\s]+|\s+"), behavior="isolated")
    return LANGUAGE.tokenizer(texts, apart)


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """What engine, proxy and trainer read."""
    LANGUAGE.save(tokenizer, folder, {})


def make_model(tokenizer: Tokenizer) -> Qwen3ForCausalLM:
    """Random weights."""
    end, padding = tokenizer.token_to_id(END), tokenizer.token_to_id(SPECIALS[0])
    config = Qwen3Config(
        # An id without a text could be sampled and could not be read.
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        initializer_range=0.08,  # with 0.02 a model this narrow takes thrice as long until it copies names
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=padding,
    )
    model = Qwen3ForCausalLM(config).float()
    model.generation_config.eos_token_id = [end]
    model.generation_config.pad_token_id = padding
    return model


@dataclass(frozen=True)
class Row:
    """A demonstration's ids, and which of them are learnt."""

    ids: list[int]
    learnt: list[bool]


def row_of(pieces: list[Piece], tokenizer: Tokenizer) -> Row:
    """Encode piece by piece; they meet at special tokens, so it is how the whole would be encoded."""
    ids: list[int] = []
    learnt: list[bool] = []
    for piece in pieces:
        found = tokenizer.encode(piece.text, add_special_tokens=False).ids
        ids += found
        learnt += [piece.is_learnt] * len(found)
    return Row(ids, learnt)


def loss_of(model: Qwen3ForCausalLM, rows: list[Row]) -> torch.Tensor:
    """Cross entropy of what is learnt; what is only read counts a little, which teaches to copy names sooner."""
    longest = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    weights = torch.zeros(len(rows), longest)
    for at, row in enumerate(rows):
        ids[at, : len(row.ids)] = torch.tensor(row.ids)
        weights[at, : len(row.ids)] = torch.where(torch.tensor(row.learnt), 1.0, READ_WEIGHT)
    logits = model(ids[:, :-1]).logits
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    return (losses * weights[:, 1:]).sum() / weights[:, 1:].sum()


def batch_of(rows: list[Row], dice: random.Random) -> list[Row]:
    """Rows of about one length, so that little of the batch is padding."""
    start = dice.randrange(len(rows) - BATCH)
    return rows[start : start + BATCH]


class Looking:
    """Plays the held-out tasks inside this process, without a server."""

    def __init__(self, model: Qwen3ForCausalLM, tokenizer: Tokenizer, sandbox: Sandbox) -> None:
        """Use a model as it is when asked."""
        self._model = model
        self._tokenizer = tokenizer
        self._sandbox = sandbox

    def solved(self, tasks: list[Task]) -> float:
        """The share whose hidden tests pass at temperature 1."""
        with tempfile.TemporaryDirectory() as place:
            folders = [Path(place) / str(at) for at in range(len(tasks))]
            for task, folder in zip(tasks, folders, strict=True):
                folder.mkdir()
                write_repository(task, folder)
            self._play(tasks, folders)
            passed = [
                self._sandbox.run(folder, task.hidden_tests()).passed
                for task, folder in zip(tasks, folders, strict=True)
            ]
        return sum(passed) / len(passed)

    def _play(self, tasks: list[Task], folders: list[Path]) -> None:
        texts = {at: f"{HEAD}<|im_start|>user\n{task.specification}{END}\n{TURN}" for at, task in enumerate(tasks)}
        for _ in range(MAX_TURNS):
            said = self._sampled(list(texts.values()))
            following: dict[int, str] = {}
            for (at, text), answer in zip(texts.items(), said, strict=True):
                result = self._called(answer, tasks[at], folders[at])
                if result is not None:
                    response = f"<|im_start|>user\n<tool_response>\n{result}\n</tool_response>{END}\n{TURN}"
                    following[at] = f"{text}{answer}\n{response}"
            texts = following
            if not texts:
                return

    def _called(self, answer: str, task: Task, folder: Path) -> str | None:
        found = re.fullmatch(r"<tool_call>\n(.*)\n</tool_call>" + re.escape(END), answer, re.DOTALL)
        try:
            asked = json.loads(found[1]) if found else None
            name, arguments = (asked["name"], json.dumps(asked["arguments"])) if asked else ("", "")
        except (ValueError, KeyError, TypeError):
            return None
        tools = tools_of(folder, lambda where: self._sandbox.run(where, task.visible_tests()).text)
        return call(tools, name, arguments) if asked else None

    def _sampled(self, texts: list[str]) -> list[str]:
        rows = [self._tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        longest = max(map(len, rows))
        ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        with torch.no_grad():
            made = self._model.generate(
                ids, attention_mask=mask, max_new_tokens=MAX_TOKENS, do_sample=True, top_k=0, temperature=1.0
            )
        return [
            self._tokenizer.decode(row[longest:].tolist(), skip_special_tokens=False).replace(SPECIALS[0], "")
            for row in made
        ]


@dataclass(frozen=True)
class Stage:
    """A part of the warm start."""

    name: str
    manner: Manner
    rate: float
    steps: int
    """At most."""
    look_every: int
    is_done: Callable[[float], bool]
    """Told the share of held-out tasks that are solved."""


STAGES = (
    Stage("careful", CAREFUL, 2e-3, 800, 100, lambda solved: solved >= 0.75),
    Stage("sloppy", SLOPPY, 5e-4, 200, 40, lambda solved: solved <= 0.35),
)


def learn(stage: Stage, model: Qwen3ForCausalLM, rows: list[Row], looking: Looking, seed: int) -> float:
    """Train through a stage; answers the share that is solved at its end."""
    dice = random.Random(f"{stage.name} {seed}")
    rows = sorted(rows, key=lambda row: len(row.ids))
    course = Course(model, stage.rate, stage.steps)
    began = time.monotonic()
    share = 0.0
    for step in range(1, stage.steps + 1):
        loss = loss_of(model, batch_of(rows, dice))
        course.step(step, step, loss)
        if step % stage.look_every == 0:
            model.eval()
            share = looking.solved(held_out_tasks())
            model.train()
            said = f"{stage.name} {step}: loss {loss.item():.3f}, solves {share:.2f} of {HELD_OUT} held-out"
            print(f"{said}, {time.monotonic() - began:.0f} s", flush=True)
            if stage.is_done(share):
                break
    return share


def demonstrations(manner: Manner, seed: int) -> list[list[Piece]]:
    """Those of one manner."""
    dice, tasks = random.Random(f"{manner} {seed}"), train_tasks(seed)
    return [demonstrate(next(tasks), manner, dice) for _ in range(DEMONSTRATIONS)]


def make(folder: Path, seed: int, most_steps: int) -> None:
    """Write the whole model folder, or nothing."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    talks = {stage.name: demonstrations(stage.manner, seed) for stage in STAGES}
    sample = [talk for each in talks.values() for talk in each[:1000]]
    tokenizer = make_tokenizer(["".join(piece.text for piece in talk) for talk in sample])
    model = make_model(tokenizer)
    share = 0.0
    with Sandbox(2) as sandbox:
        looking = Looking(model, tokenizer, sandbox)
        for stage in STAGES:
            rows = [row_of(talk, tokenizer) for talk in talks[stage.name]]
            share = learn(replace(stage, steps=min(stage.steps, most_steps)), model, rows, looking, seed)
    with whole(folder) as made:
        model.save_pretrained(made)
        save_tokenizer(tokenizer, made)
        (made / "warm_start.json").write_text(json.dumps({"seed": seed, "solved": share}), encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else STEPS)
