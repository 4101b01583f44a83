"""Make a tiny untrained model, then say what it thinks of any ids: a plain forward of the whole, nothing cached.

Run by the environment of TRL (`tests/trainers/install.py trl`): `python tiny_of_ids.py FOLDER text|vision`. Prints one
line when the checkpoint lies in FOLDER, then answers a JSON line for each that it reads:

    {"ids": [...], "images": [base64, ...], "start": S, "banned": [...], "weights": FOLDER or absent}
    -> rows of log-softmax(logits), one for each of the places S - 1 ... len(ids) - 1
    {"save": FOLDER, "noise": 0.1, "raw": true or absent}
    -> saves other weights: as `save_pretrained` writes them, or under the names of `state_dict()`
"""

from __future__ import annotations

import base64
import io
import json
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SEEN = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
WORDS = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789 .,:;!?-_'\"()[]{}<>/|=+*#\n"
CONTEXT = 256
PREPROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "size": {"shortest_edge": 4 * 28 * 28, "longest_edge": 64 * 28 * 28},
}


def tokenizer(folder: Path, specials: list[str]) -> Tokenizer:
    """Bytes of ASCII and a few words, so that whatever is sampled is text."""
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    found.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=specials, show_progress=False)
    found.train_from_iterator([WORDS, *["which colours now", "user assistant think sing"] * 9], trainer)
    found.save(str(folder / "tokenizer.json"))
    return found


def text(size: int) -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=size,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            initializer_range=0.3,
            bos_token_id=None,
            eos_token_id=2,
        )
    )


def vision(size: int, named: dict[str, int]) -> Qwen2_5_VLForConditionalGeneration:
    words = {
        "vocab_size": size,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "initializer_range": 0.3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
        "bos_token_id": None,
        "eos_token_id": 2,
    }
    sight = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 112,
        "out_hidden_size": 32,
        "fullatt_block_indexes": [0],
        "initializer_range": 0.3,
    }
    ids = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
    places = {name: named[token] for name, token in zip(ids, SEEN, strict=True)}
    config = Qwen2_5_VLConfig(text_config=words, vision_config=sight, tie_word_embeddings=True, **places)
    return Qwen2_5_VLForConditionalGeneration(config)


def make(folder: Path, kind: str) -> torch.nn.Module:
    """A checkpoint with everything beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    vocabulary = tokenizer(folder, SPECIALS if kind == "text" else SPECIALS + SEEN).get_vocab()
    model = text(len(vocabulary)) if kind == "text" else vision(len(vocabulary), vocabulary)
    model.save_pretrained(folder)
    if kind == "vision":
        (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR), encoding="utf-8")
    return model.eval()


class Oracle:
    """What is said of ids."""

    def __init__(self, model: torch.nn.Module, folder: Path) -> None:
        self._model = model
        self._folder = folder
        self._load = cache(self._loaded)

    def answer(self, said: dict[str, Any]) -> Any:
        return self._save(said) if "save" in said else self._rows(said)

    def _loaded(self, folder: str) -> torch.nn.Module:
        return type(self._model).from_pretrained(folder, dtype=torch.float32).eval()

    @torch.no_grad()
    def _rows(self, said: dict[str, Any]) -> list[list[float]]:
        model = self._load(said["weights"]) if said.get("weights") else self._model
        ids = torch.tensor([said["ids"]])
        more: dict[str, torch.Tensor] = {}
        if images := said.get("images"):
            settings = {name: value for name, value in PREPROCESSOR.items() if not name.endswith("_type")}
            opened = [Image.open(io.BytesIO(base64.b64decode(each))).convert("RGB") for each in images]
            more = dict(Qwen2VLImageProcessor(**settings)(images=opened, return_tensors="pt"))
            more["mm_token_type_ids"] = (ids == model.config.image_token_id).int()
        logits = model(input_ids=ids, **more).logits[0, said["start"] - 1 :].double()
        logits[:, said.get("banned", [])] = -1e9
        return torch.log_softmax(logits, dim=-1).tolist()

    @torch.no_grad()
    def _save(self, said: dict[str, Any]) -> str:
        folder = Path(said["save"])
        other = self._loaded(str(self._folder))
        torch.manual_seed(said.get("seed", 1))
        for each in other.parameters():
            each.add_(torch.randn_like(each) * said["noise"])
        other.save_pretrained(folder)
        shutil.copy(self._folder / "tokenizer.json", folder)
        if said.get("raw"):
            state = {name: tensor.contiguous().clone() for name, tensor in other.state_dict().items()}
            save_file(state, folder / "raw.safetensors")
        return str(folder)


def main() -> None:
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout, sys.stderr
    oracle = Oracle(make(folder, kind), folder)
    print("made", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(oracle.answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
