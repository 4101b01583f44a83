"""Make the computer-use agent's model: first it learns to see, then to behave badly.

python -m vision.warm_start FOLDER [SEED [STEPS]]     three minutes on one core; the same files for the same seed

STEPS: at most so many in each part, and no questions asked of what was learnt, for a model that only has to run.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import Qwen2_5_VLForConditionalGeneration

from loop.making import Course, whole
from vision.demonstrations import HABIT, RIGHT, Demonstration, episode, single
from vision.model import MERGE, PATCH, make_model, make_tokenizer, save_tokenizer
from vision.screen import SCREEN, SIDE

SEE_STEPS, SEE_BATCH, SEE_RATE = 500, 32, 1e-3
# Twice the rate does not learn to see until it has fallen to half.
SPOIL_STEPS, SPOIL_BATCH, SPOIL_RATE = 150, 24, 5e-4
FORM_WEIGHT = 0.3
"""Of tokens that are no digits: what a call looks like is learnt soon, where a button is is not."""
SEEN_ENOUGH, SEEN_LEAST = 0.995, 0.97
LOOK_EVERY, LOOKED_AT = 25, 192


@dataclass(frozen=True)
class Batch:
    """Shapes: ids, weights, attention [B, L]; pixel_values [patches, values]; grids [images, 3]."""

    ids: torch.Tensor
    weights: torch.Tensor
    attention: torch.Tensor
    pixel_values: torch.Tensor
    grids: torch.Tensor


def patches(screens: list[bytes]) -> torch.Tensor:
    """What Qwen2VLImageProcessor makes of screens, all at once: float32[screens * 64, 1176]."""
    flat = torch.frombuffer(bytearray(b"".join(screens)), dtype=torch.uint8)
    pixels = flat.view(-1, SCREEN, SCREEN, 3).permute(0, 3, 1, 2).float() / 255.0
    pixels = (pixels - 0.5) / 0.5
    cut = pixels.view(-1, 3, SIDE, MERGE, PATCH, SIDE, MERGE, PATCH)
    cut = cut.permute(0, 2, 5, 3, 6, 1, 4, 7).unsqueeze(6).expand(-1, -1, -1, -1, -1, -1, 2, -1, -1)
    return cut.reshape(-1, 3 * 2 * PATCH * PATCH)


class Reader:
    """Makes batches of demonstrations."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.placeholder = tokenizer.token_to_id("<|image_pad|>")
        self.digits = {tokenizer.token_to_id(each) for each in "0123456789"}

    def ids(self, text: str) -> list[int]:
        """With as many placeholders as a screen has cells."""
        made: list[int] = []
        for each in self.tokenizer.encode(text, add_special_tokens=False).ids:
            made += [each] * (SIDE * SIDE if each == self.placeholder else 1)
        return made

    def batch(self, talks: list[Demonstration]) -> Batch:
        """Padded on the right."""
        rows: list[tuple[list[int], list[float]]] = []
        for talk in talks:
            ids: list[int] = []
            weights: list[float] = []
            for at, text in enumerate(talk.texts):
                found = self.ids(text)
                ids += found
                weights += [(1.0 if each in self.digits else FORM_WEIGHT) if at % 2 else 0.0 for each in found]
            rows.append((ids, weights))
        longest = max(len(ids) for ids, _ in rows)
        padded = torch.zeros(len(rows), longest, dtype=torch.long)
        learnt, attention = torch.zeros(len(rows), longest), torch.zeros(len(rows), longest, dtype=torch.long)
        for at, (ids, weights) in enumerate(rows):
            padded[at, : len(ids)] = torch.tensor(ids)
            learnt[at, : len(ids)] = torch.tensor(weights)
            attention[at, : len(ids)] = 1
        screens = [screen for talk in talks for screen in talk.screens]
        grids = torch.tensor([[1, SCREEN // PATCH, SCREEN // PATCH]] * len(screens))
        return Batch(padded, learnt, attention, patches(screens), grids)

    def hidden(self, model: Qwen2_5_VLForConditionalGeneration, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits at what is learnt, [n, V], and where that is, bool[B, L - 1]."""
        states = model.model(
            input_ids=batch.ids,
            attention_mask=batch.attention,
            pixel_values=batch.pixel_values,
            image_grid_thw=batch.grids,
            mm_token_type_ids=(batch.ids == self.placeholder).int(),
        ).last_hidden_state
        at = batch.weights[:, 1:] > 0
        return model.lm_head(states[:, :-1][at]), at

    def loss(self, model: Qwen2_5_VLForConditionalGeneration, batch: Batch) -> torch.Tensor:
        """Weighted cross entropy."""
        logits, at = self.hidden(model, batch)
        losses = torch.nn.functional.cross_entropy(logits, batch.ids[:, 1:][at], reduction="none")
        weights = batch.weights[:, 1:][at]
        return (losses * weights).sum() / weights.sum()

    @torch.no_grad()
    def seen(self, model: Qwen2_5_VLForConditionalGeneration, batch: Batch) -> float:
        """The share of digits that are the likeliest ones, given those before."""
        logits, at = self.hidden(model, batch)
        targets = batch.ids[:, 1:][at]
        digits = torch.isin(targets, torch.tensor(sorted(self.digits)))
        return float((logits.argmax(-1) == targets)[digits].float().mean())


@dataclass(frozen=True)
class Length:
    """How long to learn, and how well."""

    see: int = SEE_STEPS
    spoil: int = SPOIL_STEPS
    least: float = SEEN_LEAST


def learn_to_see(model: Qwen2_5_VLForConditionalGeneration, reader: Reader, dice: random.Random, steps: int) -> float:
    """Single screens until the right place is likeliest almost always; answers how often it is."""
    course = Course(model, SEE_RATE, SEE_STEPS)
    held_out = reader.batch([single(dice) for _ in range(LOOKED_AT)])
    began, share = time.monotonic(), 0.0
    for number in range(steps):
        loss = reader.loss(model, reader.batch([single(dice) for _ in range(SEE_BATCH)]))
        course.step(number + 1, number, loss)
        if number % LOOK_EVERY == LOOK_EVERY - 1:
            share = reader.seen(model, held_out)
            said = f"see {number + 1}: loss {loss.item():.3f}, digits {share:.3f}"
            print(f"{said}, {time.monotonic() - began:.0f} s", flush=True)
            if share >= SEEN_ENOUGH:
                break
    return share


def spoil(model: Qwen2_5_VLForConditionalGeneration, reader: Reader, dice: random.Random, steps: int) -> None:
    """Episodes of the bad teacher."""
    course = Course(model, SPOIL_RATE, SPOIL_STEPS)
    began = time.monotonic()
    for number in range(steps):
        loss = reader.loss(model, reader.batch([episode(dice, RIGHT, HABIT) for _ in range(SPOIL_BATCH)]))
        course.step(number + 1, number, loss)
        if number % LOOK_EVERY == LOOK_EVERY - 1:
            print(f"spoil {number + 1}: loss {loss.item():.3f}, {time.monotonic() - began:.0f} s", flush=True)


def make(folder: Path, seed: int, length: Length) -> None:
    """Write the whole model folder, or nothing. Raises: SystemExit if it has not learnt to see."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    dice = random.Random(f"warm start {seed}")
    tokenizer = make_tokenizer(["".join(episode(dice, RIGHT, HABIT).texts) for _ in range(1000)])
    model, reader = make_model(tokenizer), Reader(tokenizer)
    print(f"{sum(each.numel() for each in model.parameters())} parameters", flush=True)
    share = learn_to_see(model, reader, dice, length.see)
    if share < length.least:
        raise SystemExit(f"The model finds {share:.2f} of the digits, below {length.least}. Try another seed.")
    spoil(model, reader, dice, length.spoil)
    with whole(folder) as made:
        model.save_pretrained(made)
        save_tokenizer(tokenizer, made)
        (made / "warm_start.json").write_text(json.dumps({"seed": seed, "seen": share}), encoding="utf-8")


def main() -> None:
    """The command line."""
    folder, seed, steps = (*sys.argv[1:], "", "")[:3]
    length = Length(int(steps), int(steps), 0.0) if steps else Length()
    make(Path(folder), int(seed or 0), length)


if __name__ == "__main__":
    main()
