"""Samples with a real model, damages the record in every way that audits are for, and audits each damaged copy.

Runs inside the environment of TRL. In: {"model": folder, "file": path to write}. Out: {"cases": {case: SequenceAudit},
"command": [exit code, stdout, stderr] of `turnstile audit` on a file with a fault}.
"""

from __future__ import annotations

import copy
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec.structs import replace
from transformers import Gemma2Config, Gemma2ForCausalLM
from typer.testing import CliRunner

from turnstile.cli import app
from turnstile.reports.audit import audit_sequence
from turnstile.reports.audit_figures import Limits
from turnstile.reports.audit_model import load_model
from turnstile.tokens import IdRun, LogprobRun
from turnstile.trajectory.files import write
from turnstile.trajectory.format import (
    CallInfo,
    HeadInfo,
    Rollout,
    SamplingInfo,
    Sequence,
    SequenceSegment,
    TokenCounts,
    UsageInfo,
)
from turnstile.trajectory.side_files import SideFiles

NOW = datetime(2026, 12, 1, tzinfo=UTC)
FIRST, SECOND = 40, 40
"""Sampled ids of the two answers."""


def continued(model: Any, ids: list[int], count: int) -> list[int]:
    out = model.generate(
        torch.tensor([ids]),
        max_new_tokens=count,
        min_new_tokens=count,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
    )
    return out[0].tolist()


def numbers(model: Any, ids: list[int], places: list[int], *, temperature: float = 1.0, own: int = 0) -> list[float]:
    """What an engine records: with the whole logits, not by the audit's code."""
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0].float() / temperature
    logprobs = torch.log_softmax(logits, -1)
    return [float(logprobs[at - 1 + own, ids[at]]) for at in places]


class Record:
    """Two answers with a tool's words between them."""

    def __init__(self, prompt: list[int], ids: list[int], middle: int) -> None:
        self.prompt = len(prompt)
        self.ids = ids
        self.middle = middle
        self.answers = [(self.prompt, self.prompt + FIRST), (self.prompt + FIRST + middle, len(ids))]
        self.places = [at for start, end in self.answers for at in range(start, end)]

    def rollout(
        self, logprobs: list[float], ids: list[int] | None = None, hashed: list[int] | None = None, **sampling: Any
    ) -> Rollout:
        """As the file has it: these numbers, these ids, and the hashes of the ids that the engine ran."""
        ids, hashed = ids or self.ids, hashed or self.ids
        shift = len(ids) - len(self.ids)
        answers = [(start + shift, end + shift) for start, end in self.answers]
        segments, before = [], 0
        for call, (start, end) in enumerate(answers):
            segments.append(SequenceSegment(start=before, end=start, kind="observation" if before else "prompt"))
            segments.append(SequenceSegment(start=start, end=end, kind="sampled", call=call, trainable=True))
            before = end
        in_engine = len(hashed) - len(self.ids)
        calls = [
            CallInfo(
                call_id=f"c{call}",
                parent=call - 1 if call else None,
                history="spliced" if call else "root",
                kind="agent",
                dialect="chat",
                choice_index=0,
                head=0,
                sampling=0,
                sequence=0,
                started_at=NOW,
                finish="stop",
                usage=UsageInfo(prompt_tokens=start, completion_tokens=end - start),
                prompt_sha256=IdRun.of(hashed[: start + in_engine]).sha256(),
                completion_sha256="0" * 64,
                logprobs_mode="processed",
                logprobs_temperature=sampling.pop("inside", 1.0) if call == 0 else 1.0,
                complete=True,
                incomplete_reasons=(),
            )
            for call, (start, end) in enumerate(self.answers)
        ]
        calls[1] = replace(calls[1], logprobs_temperature=calls[0].logprobs_temperature)
        sequence = Sequence(
            sequence_id="r/0",
            head=0,
            leaf_call=1,
            token_ids=IdRun.of(ids),
            prompt_length=answers[0][0],
            segments=tuple(segments),
            logprobs=LogprobRun.of(logprobs),
            complete=True,
            incomplete_reasons=(),
            media=(),
            arrays={},
            messages=(),
        )
        return Rollout(
            rollout_id="r", attempt=1, created_at=NOW, status="completed", trainable=True, mask_reasons=(), rewards={},
            metrics={}, heads=(HeadInfo(model="m", engine="e", tokenizer_sha256="0" * 64, vocab_size=512,
            template_kwargs={}),), samplings=(SamplingInfo(temperature=1.0, **sampling),), calls=tuple(calls),
            sequences=(sequence,), messages=(), tools=(), extra={},
            token_counts=TokenCounts(sampled=80, trainable=80, masked={}, discarded={}),
        )  # fmt: skip


def swapped(ids: list[int], at: int) -> list[int]:
    return [*ids[:at], (ids[at] + 137) % 480 + 20, *ids[at + 1 :]]


def cases(model: Any, record: Record, exact: list[float]) -> dict[str, Rollout]:
    ids, places = record.ids, record.places
    say = record.rollout
    near, far, told = record.prompt - 1, 2, record.answers[1][0] - 2
    spoilt = 57
    return {
        "exact": say(exact),
        "shifted early": say([*exact[1:], -1.0]),
        "shifted late": say([-1.0, *exact[:-1]]),
        "own position": say(numbers(model, [*ids, 0], places, own=1)),
        "T 0.7, as T 1": say(numbers(model, ids, places, temperature=0.7)),
        "T 1, as T 0.7": say(exact, inside=0.7),
        "near prompt id": say(exact, swapped(ids, near)),
        "far prompt id": say(exact, swapped(ids, far)),
        "near prompt id, hash of the file": say(exact, swapped(ids, near), swapped(ids, near)),
        "observation id": say(exact, swapped(ids, told)),
        "observation id, hash of the file": say(exact, swapped(ids, told), swapped(ids, told)),
        "prompt id missing": say(exact, ids[:5] + ids[6:]),
        "prompt id doubled": say(exact, ids[:5] + ids[4:]),
        "sampled id": say(exact, swapped(ids, places[20])),
        "sampled id, first of the second answer": say(exact, swapped(ids, places[FIRST])),
        "one number": say([*exact[:spoilt], exact[spoilt] - 3.0, *exact[spoilt + 1 :]]),
        "whole distribution, as top-p": say(exact, top_p=0.9),
    }


def other_weights(model: Any) -> Any:
    """Another revision: weights that went on."""
    generator = torch.Generator().manual_seed(0)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for each in other.parameters():
            each += 0.2 * each.std() * torch.randn(each.shape, generator=generator)
    return other


def capped(folder: Path) -> Any:
    """What is said of an architecture that caps its logits behind the head, which rows of the head alone would miss."""
    config = Gemma2Config(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        initializer_range=0.15,
        final_logit_softcapping=3.0,
    )
    Gemma2ForCausalLM(config).to(torch.float32).save_pretrained(folder)
    model = load_model(folder)
    prompt, told = torch.randint(20, 500, (16,)).tolist(), torch.randint(20, 500, (14,)).tolist()
    ids = continued(model._model, continued(model._model, prompt, FIRST) + told, SECOND)
    record = Record(prompt, ids, len(told))
    rollout = record.rollout(numbers(model._model, ids, record.places))
    return audit_sequence(rollout, rollout.sequences[0], model, SideFiles("nowhere"), Limits())


def command(said: dict[str, str], made: dict[str, Rollout]) -> list[object]:
    chosen = [replace(made[name], rollout_id=name) for name in ("exact", "bfloat16, as it is", "shifted early")]
    write(said["file"], chosen)
    told = CliRunner().invoke(app, ["audit", said["file"], "--model", said["model"]])
    return [told.exit_code, told.stdout, told.stderr]


def main() -> None:
    said = json.loads(sys.stdin.readline())
    torch.manual_seed(20261201)
    torch.set_num_threads(1)
    model = load_model(Path(said["model"]))
    network = model._model
    prompt, told = torch.randint(20, 500, (16,)).tolist(), torch.randint(20, 500, (14,)).tolist()
    ids = continued(network, continued(network, prompt, FIRST) + told, SECOND)
    record = Record(prompt, ids, len(told))
    exact = numbers(network, ids, record.places)
    made = cases(network, record, exact)
    made["other weights"] = record.rollout(numbers(other_weights(network), ids, record.places))
    half = copy.deepcopy(network).to(torch.bfloat16)
    coarse = numbers(half, ids, record.places)
    noisy = {
        "as it is": record.rollout(coarse),
        "shifted late": record.rollout([-1.0, *coarse[:-1]]),
        "T 0.7, as T 1": record.rollout(numbers(half, ids, record.places, temperature=0.7)),
        "far prompt id, seen by its hash": record.rollout(coarse, swapped(ids, 2)),
        "sampled id": record.rollout(coarse, swapped(ids, record.places[20])),
        "one number": record.rollout([*coarse[:57], coarse[57] - 3.0, *coarse[58:]]),
    }
    made |= {f"bfloat16, {name}": rollout for name, rollout in noisy.items()}
    side = SideFiles("nowhere")
    found = {}
    for name, rollout in made.items():
        found[name] = audit_sequence(rollout, rollout.sequences[0], model, side, Limits())
        print(name, found[name].verdict, found[name].figures, found[name].finding, file=sys.stderr)
    found["capped logits"] = capped(Path(said["model"]) / "capped")
    print(msgspec.json.encode({"cases": found, "command": command(said, made)}).decode())


main()
