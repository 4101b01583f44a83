"""Train a two-layer Qwen2.5-VL that says which colour each screenshot has; save it for vLLM.

Run by the environment that `install.py` makes: `python tiny_qwen25vl.py FOLDER`, where FOLDER holds Qwen2.5-VL's
`tokenizer.json` and `chat_template.jinja`. Takes about two minutes on one core.

Images of any size work; none takes more than 512 tokens, which keeps vLLM's warm-up short. What it has learnt: behind
a message with images it names the colour of the last one, in one of a few ways, and ends with `<|im_end|>`. So its
answers end, depend on the image, and differ at temperature 1.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

import torch
from PIL import Image
from tokenizers import Tokenizer
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLImageProcessor

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 220), "white": (240, 240, 240)}
WAYS = ("It is {}.", "I see {}.", "The screen is {}.")
STEPS = 200
BATCH = 4
RATE = 3e-3
VOCABULARY = 151936
NEGATIVES = 2048
END = 151645
START_OF_IMAGE, END_OF_IMAGE, PAD, VIDEO_PAD = 151652, 151653, 151655, 151656
PREPROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "size": {"shortest_edge": 4 * 28 * 28, "longest_edge": 512 * 28 * 28},
    "min_pixels": 4 * 28 * 28,
    "max_pixels": 512 * 28 * 28,
}
WORDS = ("what", "is", "on", "the", "screen", "now", "please", "look", "again", "and", "say", "which", "colour")


def picture(colour: str, dice: random.Random) -> Image.Image:
    """A screenshot of one colour with a little noise, of some size."""
    wide, high = 28 * dice.randint(2, 6), 28 * dice.randint(2, 4)
    base = Image.new("RGB", (wide, high), tuple(max(0, min(255, c + dice.randint(-20, 20))) for c in COLOURS[colour]))
    for _ in range(12):
        x, y = dice.randrange(wide), dice.randrange(high)
        base.paste(tuple(dice.randrange(256) for _ in range(3)), (x, y, min(wide, x + 9), min(high, y + 9)))
    return base


class Maker:
    """Conversations with images, as a model takes them."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._processor = Qwen2VLImageProcessor(**{k: v for k, v in PREPROCESSOR.items() if "process" not in k})

    def ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def talk(self, dice: random.Random) -> dict[str, torch.Tensor]:
        """One to three turns with a picture each; `learnt` marks the answers."""
        ids = self.ids("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n")
        learnt = [False] * len(ids)
        pixels, grids = [], []
        for _ in range(dice.randint(1, 3)):
            colour = dice.choice(list(COLOURS))
            seen = self._processor(images=[picture(colour, dice)], return_tensors="pt")
            pixels.append(seen["pixel_values"])
            grids.append(seen["image_grid_thw"])
            pads = int(seen["image_grid_thw"].prod()) // PREPROCESSOR["merge_size"] ** 2
            said = " ".join(dice.choices(WORDS, k=dice.randint(1, 8)))
            image = [START_OF_IMAGE, *[PAD] * pads, END_OF_IMAGE]
            parts = [image, self.ids(said)] if dice.random() < 0.5 else [self.ids(said), image]
            prompt = self.ids("<|im_start|>user\n") + parts[0] + parts[1]
            prompt += self.ids("<|im_end|>\n<|im_start|>assistant\n")
            answer = self.ids(dice.choices(WAYS, (0.7, 0.2, 0.1))[0].format(colour) + "<|im_end|>")
            ids += prompt + answer + self.ids("\n")
            learnt += [False] * len(prompt) + [True] * len(answer) + [False]
        return {
            "input_ids": torch.tensor([ids]),
            "mm_token_type_ids": torch.tensor([[int(each == PAD) for each in ids]]),
            "pixel_values": torch.cat(pixels),
            "image_grid_thw": torch.cat(grids),
            "learnt": torch.tensor(learnt),
        }


def loss_of(
    model: Qwen2_5_VLForConditionalGeneration, talk: dict[str, torch.Tensor], pool: torch.Tensor
) -> torch.Tensor:
    learnt = talk["learnt"][1:]
    inputs = {name: value for name, value in talk.items() if name != "learnt"}
    hidden = model.model(**inputs).last_hidden_state[0, :-1][learnt]
    drawn = torch.randint(0, VOCABULARY, (NEGATIVES,))
    weight = torch.zeros(len(pool) + NEGATIVES)
    weight[len(pool) :] = torch.log(torch.tensor((VOCABULARY - len(pool)) / NEGATIVES))
    weight[len(pool) :][torch.isin(drawn, pool)] = -torch.inf
    scores = hidden @ model.lm_head.weight[torch.cat([pool, drawn])].T + weight
    return torch.nn.functional.cross_entropy(scores, torch.searchsorted(pool, talk["input_ids"][0, 1:][learnt]))


def train(model: Qwen2_5_VLForConditionalGeneration, maker: Maker, dice: random.Random) -> None:
    said = [way.format(colour) + "<|im_end|>" for way in WAYS for colour in COLOURS]
    pool = torch.tensor(sorted({each for text in said for each in maker.ids(text)}))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    began = time.monotonic()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 20) * (1 - 0.95 * step / STEPS)
        losses = [loss_of(model, maker.talk(dice), pool) for _ in range(BATCH)]
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step}: loss {loss.item():.4f}, {time.monotonic() - began:.0f} s", flush=True)


def check(model: Qwen2_5_VLForConditionalGeneration, maker: Maker) -> None:
    """The likeliest tokens of twenty talks. Raises: SystemExit if a colour is wrong more than twice."""
    wrong = 0
    colours = {maker.ids(f" {colour}")[0] for colour in COLOURS}
    dice = random.Random(99)
    for _ in range(20):
        talk = maker.talk(dice)
        inputs = {name: value for name, value in talk.items() if name != "learnt"}
        with torch.no_grad():
            likeliest = model(**inputs).logits[0, :-1].argmax(-1)
        targets, learnt = talk["input_ids"][0, 1:], talk["learnt"][1:]
        named = torch.tensor([bool(at) and int(target) in colours for at, target in zip(learnt, targets, strict=True)])
        wrong += int((likeliest != targets)[named].any())
    if wrong > 2:
        raise SystemExit(f"{wrong} of 20 talks have a wrong colour")
    print(f"{wrong} of 20 talks have a wrong colour", flush=True)


def main() -> None:
    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    text = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]},
        "bos_token_id": 151643,
        "eos_token_id": END,
    }
    vision = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "in_channels": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 112,
        "out_hidden_size": 64,
        "fullatt_block_indexes": [1],
        "tokens_per_second": 2,
    }
    config = Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=PAD,
        video_token_id=VIDEO_PAD,
        vision_start_token_id=START_OF_IMAGE,
        vision_end_token_id=END_OF_IMAGE,
        tie_word_embeddings=True,
    )
    model = Qwen2_5_VLForConditionalGeneration(config).float()
    maker = Maker(folder)
    train(model, maker, random.Random(0))
    model.to(torch.bfloat16).to(torch.float32).eval()
    check(model, maker)
    model.generation_config.eos_token_id = [END]
    model.generation_config.pad_token_id = 151643
    model.to(torch.bfloat16).save_pretrained(folder)
    template = (folder / "chat_template.jinja").read_bytes().decode()
    tokenizer = {
        "tokenizer_class": "Qwen2TokenizerFast",
        "processor_class": "Qwen2_5_VLProcessor",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "bos_token": None,
        "model_max_length": 8192,
        "chat_template": template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR), encoding="utf-8")
    print(f"saved {folder}: {sum(each.numel() for each in model.parameters())} parameters", flush=True)


if __name__ == "__main__":
    main()
