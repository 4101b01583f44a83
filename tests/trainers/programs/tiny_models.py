"""Makes a checkpoint of a random tiny model, with numbers as peaked as those of a trained one.

Runs inside the environment of TRL. In: {"folder": path, "tokenizer": a model's folder or null}. Out: the folder.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def tiny_llama(folder: Path, vocab_size: int) -> None:
    """107,456 weights at 512 ids."""
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.15,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config).to(torch.float32)
    with torch.no_grad():
        model.lm_head.weight *= 2.0
    model.save_pretrained(folder)


def main() -> None:
    said = json.loads(sys.stdin.readline())
    folder = Path(said["folder"])
    vocab_size = 512
    if said.get("tokenizer"):
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(Path(said["tokenizer"]) / name, folder / name)
        tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        ids = [*tokenizer["model"]["vocab"].values(), *(each["id"] for each in tokenizer["added_tokens"])]
        vocab_size = max(ids) + 1
    tiny_llama(folder, vocab_size)
    print(json.dumps(str(folder)))


main()
