"""Weights from a file into a running model: checked as a whole first, then copied. Nothing is ever loaded in part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel


class WeightsRefused(Exception):
    """These weights do not fit the model that is served; it keeps its own."""


def own_tensors(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """What `state_dict()` holds, tied tensors once, under the first of their names."""
    state = model.state_dict(keep_vars=True)
    tied = tied_names(model)
    return {name: tensor for name, tensor in state.items() if name not in tied}


def tied_names(model: PreTrainedModel) -> dict[str, str]:
    """Names in `state_dict()` that stand for a tensor which has another one too, and that name."""
    first: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    return {name: first[id(each)] for name, each in state.items() if first.setdefault(id(each), name) != name}


def weights_sha256(model: PreTrainedModel) -> str:
    """sha256 over names, types, shapes and bytes of all tensors: equal in engine and trainer for equal weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(own_tensors(model).items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def read_weights(model: PreTrainedModel, path: Path) -> dict[str, torch.Tensor]:
    """Tensors for a model, by its own names, all of them and no other.

    A checkpoint is either a `.safetensors` file (or a folder of them) with the names of `state_dict()`, which is read
    in milliseconds, or a folder that `save_pretrained` wrote. Those of vision models have other names in their files,
    so transformers itself reads them: `load_state_dict(strict=False)` would load nothing and say nothing.

    Raises: WeightsRefused on any missing or unexpected name, another shape, or another configuration.
    """
    own, tied = own_tensors(model), tied_names(model)
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    if not files:
        raise WeightsRefused(f"{path} is no .safetensors file, and no folder with one")
    if path.is_dir():
        _refuse_other_config(model, path)
    found: dict[str, torch.Tensor] = {}
    for file in files:
        found |= load_file(file)
    for name, first in tied.items():
        same = found.pop(name, None)
        if same is not None and first in found and not torch.equal(same, found[first]):
            raise WeightsRefused(f"{name} and {first} are one tensor in the model that is served, and differ here")
    if found.keys() != own.keys() and (path / "config.json").is_file():
        found = _converted(model, path)
    _refuse_others(own, found)
    return found


def copy_weights(model: PreTrainedModel, tensors: dict[str, torch.Tensor]) -> None:
    """Put tensors of `read_weights` into the model, which nothing may be using."""
    own = own_tensors(model)
    with torch.no_grad():
        for name, tensor in tensors.items():
            own[name].copy_(tensor)


def _converted(model: PreTrainedModel, path: Path) -> dict[str, torch.Tensor]:
    try:
        loaded, told = type(model).from_pretrained(path, output_loading_info=True, dtype=model.dtype)
    except (RuntimeError, ValueError, OSError) as problem:
        raise WeightsRefused(f"{path}: {problem}") from problem
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        if told[kind]:
            raise WeightsRefused(f"{path} has {kind.replace('_', ' ')}: {_first(told[kind])}")
    return {name: tensor.detach() for name, tensor in own_tensors(loaded).items()}


def _refuse_others(own: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> None:
    if missing := own.keys() - found.keys():
        raise WeightsRefused(f"{len(missing)} tensors are missing: {_first(missing)}")
    if unexpected := found.keys() - own.keys():
        raise WeightsRefused(f"{len(unexpected)} tensors are not the model's: {_first(unexpected)}")
    for name, tensor in own.items():
        if tensor.shape != found[name].shape:
            raise WeightsRefused(f"{name} has the shape {tuple(found[name].shape)}, not {tuple(tensor.shape)}")
        if not found[name].isfinite().all():
            raise WeightsRefused(f"{name} has numbers that are not finite")


_VOLATILE = {
    *("transformers_version", "_name_or_path", "dtype", "torch_dtype", "use_cache", "architectures"),
    *("bos_token_id", "eos_token_id", "pad_token_id"),
}
"""What a trainer may write otherwise without another model coming of it."""


def _refuse_other_config(model: PreTrainedModel, path: Path) -> None:
    """Rotary bases, layer types and the like have no shape that would show them."""
    file = path / "config.json"
    if not file.is_file():
        return
    ours = json.loads(model.config.to_json_string(use_diff=False))
    if different := _differences(ours, json.loads(file.read_text(encoding="utf-8"))):
        raise WeightsRefused(f"{file} is of another model: {_first(different)}")


def _differences(ours: Any, theirs: Any, name: str = "") -> list[str]:
    """What both say, and say otherwise."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        shared = sorted((ours.keys() & theirs.keys()) - _VOLATILE)
        return [each for key in shared for each in _differences(ours[key], theirs[key], f"{name}.{key}".lstrip("."))]
    return [] if ours == theirs else [f"{name} is {theirs}, not {ours}"]


def _first(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
