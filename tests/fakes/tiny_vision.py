"""A two-layer Qwen2.5-VL with random weights, as llama.cpp reads it: `text.gguf` and `mmproj.gguf`, made in seconds.

`python tiny_vision.py TOKENIZER_JSON FOLDER` makes them there, serves them with xllamacpp, prints the address, and
stops when its standard input ends.

It says nothing of sense, but a real llama.cpp runs real images through it, and what it says depends on them. Sizes and
names of tensors are those that llama.cpp's own converter would write for such a model (`convert_hf_to_gguf.py`,
architectures `qwen2vl` and `clip`); the file format is `ggml/docs/gguf.md`, version 3.
"""

from __future__ import annotations

import importlib
import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, HIDDEN, HEADS, LAYERS = 64, 128, 2, 2
CONTEXT = 2048
END_OF_TURN = "<|im_end|>"

_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
_ALIGNMENT = 32
_F32, _F16 = 0, 1


class Gguf:
    """A file that is being put together."""

    def __init__(self, architecture: str) -> None:
        self._values: list[bytes] = []
        self._tensors: list[tuple[str, np.ndarray]] = []
        self.text("general.architecture", architecture)

    def text(self, key: str, value: str) -> None:
        self._values.append(_string(key) + struct.pack("<I", _STRING) + _string(value))

    def number(self, key: str, value: int) -> None:
        self._values.append(_string(key) + struct.pack("<II", _UINT32, value))

    def real(self, key: str, value: float) -> None:
        self._values.append(_string(key) + struct.pack("<If", _FLOAT32, value))

    def flag(self, key: str, value: bool) -> None:
        self._values.append(_string(key) + struct.pack("<I?", _BOOL, value))

    def texts(self, key: str, values: list[str]) -> None:
        head = struct.pack("<IIQ", _ARRAY, _STRING, len(values))
        self._values.append(_string(key) + head + b"".join(map(_string, values)))

    def numbers(self, key: str, values: list[int]) -> None:
        self._values.append(
            _string(key) + struct.pack("<IIQ", _ARRAY, _INT32, len(values)) + np.array(values, "<i4").tobytes()
        )

    def reals(self, key: str, values: list[float]) -> None:
        self._values.append(
            _string(key) + struct.pack("<IIQ", _ARRAY, _FLOAT32, len(values)) + np.array(values, "<f4").tobytes()
        )

    def tensor(self, name: str, values: np.ndarray) -> None:
        self._tensors.append((name, values))

    def write(self, file: Path) -> None:
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self._tensors), len(self._values)) + b"".join(self._values)
        offset = 0
        for name, values in self._tensors:
            kind = _F16 if values.dtype == np.float16 else _F32
            shape = struct.pack(f"<I{values.ndim}Q", values.ndim, *reversed(values.shape))
            head += _string(name) + shape + struct.pack("<IQ", kind, offset)
            offset += _padded(values.nbytes)
        with file.open("wb") as out:
            out.write(head.ljust(_padded(len(head)), b"\0"))
            for _, values in self._tensors:
                out.write(values.tobytes().ljust(_padded(values.nbytes), b"\0"))


def make(tokenizer: Path, folder: Path) -> None:
    """Write both files into a folder. `tokenizer` is a Qwen2.5-VL's `tokenizer.json`."""
    dice = np.random.default_rng(7)
    _text(json.loads(tokenizer.read_text(encoding="utf-8")), dice).write(folder / "text.gguf")
    _image(dice).write(folder / "mmproj.gguf")


def _text(tokenizer: dict[str, Any], dice: np.random.Generator) -> Gguf:
    file = Gguf("qwen2vl")
    for key, value in (
        ("block_count", LAYERS),
        ("context_length", CONTEXT),
        ("embedding_length", WIDTH),
        ("feed_forward_length", HIDDEN),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", HEADS),
    ):
        file.number(f"qwen2vl.{key}", value)
    file.real("qwen2vl.attention.layer_norm_rms_epsilon", 1e-6)
    file.real("qwen2vl.rope.freq_base", 1e6)
    file.numbers("qwen2vl.rope.dimension_sections", [4, 6, 6, 0])
    size = _vocabulary(file, tokenizer)
    file.tensor("token_embd.weight", dice.normal(0, 0.5, (size, WIDTH)).astype(np.float16))
    file.tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        for name in ("attn_norm", "ffn_norm"):
            file.tensor(f"{block}.{name}.weight", np.ones(WIDTH, np.float32))
        for name in ("attn_q", "attn_k", "attn_v"):
            _linear(file, f"{block}.{name}", (WIDTH, WIDTH), dice)
        file.tensor(f"{block}.attn_output.weight", _matrix((WIDTH, WIDTH), dice))
        for name, shape in (
            ("ffn_gate", (HIDDEN, WIDTH)),
            ("ffn_up", (HIDDEN, WIDTH)),
            ("ffn_down", (WIDTH, HIDDEN)),
        ):
            file.tensor(f"{block}.{name}.weight", _matrix(shape, dice))
    return file


def _vocabulary(file: Gguf, tokenizer: dict[str, Any]) -> int:
    model, added = tokenizer["model"], tokenizer["added_tokens"]
    size = max(max(model["vocab"].values()), *(token["id"] for token in added)) + 1
    tokens, kinds = [f"[PAD{at}]" for at in range(size)], [_UNUSED] * size
    for token, at in model["vocab"].items():
        tokens[at], kinds[at] = token, _NORMAL
    for token in added:
        tokens[token["id"]] = token["content"]
        kinds[token["id"]] = _CONTROL if token["special"] else _USER_DEFINED
    ids = {token["content"]: token["id"] for token in added}
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    file.text("tokenizer.ggml.model", "gpt2")
    file.text("tokenizer.ggml.pre", "qwen2")
    file.texts("tokenizer.ggml.tokens", tokens)
    file.numbers("tokenizer.ggml.token_type", kinds)
    file.texts("tokenizer.ggml.merges", merges)
    file.number("tokenizer.ggml.eos_token_id", ids[END_OF_TURN])
    file.number("tokenizer.ggml.bos_token_id", ids["<|endoftext|>"])
    file.flag("tokenizer.ggml.add_bos_token", value=False)
    return size


def _image(dice: np.random.Generator) -> Gguf:
    file = Gguf("clip")
    file.text("general.type", "mmproj")
    file.text("clip.projector_type", "qwen2.5vl_merger")
    file.flag("clip.has_vision_encoder", value=True)
    file.flag("clip.use_silu", value=True)
    for key, value in (
        ("image_size", 560),
        ("patch_size", 14),
        ("embedding_length", WIDTH),
        ("feed_forward_length", HIDDEN),
        ("block_count", LAYERS),
        ("attention.head_count", HEADS),
        ("projection_dim", WIDTH),
        ("n_wa_pattern", LAYERS),
        ("spatial_merge_size", 2),
    ):
        file.number(f"clip.vision.{key}", value)
    file.real("clip.vision.attention.layer_norm_epsilon", 1e-6)
    file.reals("clip.vision.image_mean", [0.5, 0.5, 0.5])
    file.reals("clip.vision.image_std", [0.25, 0.25, 0.25])
    for name in ("v.patch_embd.weight", "v.patch_embd.weight.1"):
        file.tensor(name, _matrix((WIDTH, 3, 14, 14), dice))
    for layer in range(LAYERS):
        block = f"v.blk.{layer}"
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            _linear(file, f"{block}.{name}", (WIDTH, WIDTH), dice)
        for name in ("ln1", "ln2"):
            file.tensor(f"{block}.{name}.weight", np.ones(WIDTH, np.float32))
        for name, shape in (
            ("ffn_gate", (HIDDEN, WIDTH)),
            ("ffn_up", (HIDDEN, WIDTH)),
            ("ffn_down", (WIDTH, HIDDEN)),
        ):
            _linear(file, f"{block}.{name}", shape, dice)
    file.tensor("v.post_ln.weight", np.ones(WIDTH, np.float32))
    _linear(file, "mm.0", (4 * WIDTH, 4 * WIDTH), dice)
    _linear(file, "mm.2", (WIDTH, 4 * WIDTH), dice)
    return file


def _linear(file: Gguf, name: str, shape: tuple[int, ...], dice: np.random.Generator) -> None:
    file.tensor(f"{name}.weight", _matrix(shape, dice))
    file.tensor(f"{name}.bias", np.zeros(shape[0], np.float32))


def _matrix(shape: tuple[int, ...], dice: np.random.Generator) -> np.ndarray:
    return dice.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape).astype(np.float32)


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def main() -> None:
    tokenizer, folder = map(Path, sys.argv[1:3])
    make(tokenizer, folder)
    xllamacpp = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path, params.mmproj.path = str(folder / "text.gguf"), str(folder / "mmproj.gguf")
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel, params.kv_unified = 2 * CONTEXT, 2, False
    params.n_gpu_layers, params.mmproj_use_gpu, params.warmup = 0, False, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    sys.stdout.write(server.listening_address + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    # The native threads cannot be joined.
    os._exit(0)


if __name__ == "__main__":
    main()
