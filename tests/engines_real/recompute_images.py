"""Recompute the log-probabilities of an exported rollout with images, by transformers alone.

Run by the environment that `install.py` makes: `python recompute_images.py MODEL_DIR FILE.jsonl`. Knows the format from
its page only and imports nothing of Turnstile. Prints a JSON line: for each sequence how many log-probabilities it has,
and the largest difference between one that was recorded and one that was computed; with other images, that one too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from PIL import Image
from transformers import Qwen2_5_VLForConditionalGeneration, Qwen2VLImageProcessor


def main() -> None:
    """The command."""
    folder, file = Path(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    processor = Qwen2VLImageProcessor.from_pretrained(folder)
    found = []
    for line in file.read_text().splitlines():
        for sequence in json.loads(line)["sequences"]:
            said = logprobs(model, processor, sequence, file, 0)
            other = logprobs(model, processor, sequence, file, 1)
            recorded = sequence["logprobs"]
            found.append(
                {
                    "numbers": len(recorded),
                    "apart": max(abs(a - b) for a, b in zip(recorded, said, strict=True)),
                    "apart_with_other_images": max(abs(a - b) for a, b in zip(recorded, other, strict=True)),
                }
            )
    sys.stdout.write(json.dumps(found) + "\n")


def logprobs(model, processor, sequence, file: Path, shift: int) -> list[float]:
    """Of each sampled token; `shift` rotates the pixels, so that the model sees other colours."""
    pixels, grids = [], []
    for entry in sequence["media"]:
        data = Path(f"{file}.media") / entry["sha256"][:2] / entry["sha256"]
        image = Image.open(data).convert("RGB")
        assert image.size == (entry["width"], entry["height"])
        if shift:
            image = Image.merge("RGB", (image.split() * 2)[shift : shift + 3])
        made = processor(images=[image], return_tensors="pt")
        assert int(made["image_grid_thw"].prod()) // 4 == entry["num_tokens"]
        pixels.append(made["pixel_values"])
        grids.append(made["image_grid_thw"])
    ids = torch.tensor([sequence["token_ids"]])
    kinds = torch.zeros_like(ids)
    for entry in sequence["media"]:
        kinds[0, entry["offset"] : entry["offset"] + entry["length"]] = 1
    with torch.no_grad():
        logits = model(
            input_ids=ids,
            pixel_values=torch.cat(pixels),
            image_grid_thw=torch.cat(grids),
            mm_token_type_ids=kinds,
        ).logits[0]
    places = [
        at
        for segment in sequence["segments"]
        if segment["kind"] == "sampled"
        for at in range(segment["start"], segment["end"])
    ]
    # In float32 like the engine: over 151,936 logits this alone is up to 2.2e-4 from the same in float64.
    rows = torch.log_softmax(logits.float(), -1)
    return [float(rows[at - 1, sequence["token_ids"][at]]) for at in places]


if __name__ == "__main__":
    main()
