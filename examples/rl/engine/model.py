"""A causal model that runs several sequences at once: prefill, one token more for each, and their caches joined.

Sequences are padded on the left, so that all of a batch end in the same column. Attention masks and positions are
given outright, so a sequence's numbers do not depend on what runs beside it (beyond float rounding).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from images import Pictures
from sampling import ban
from transformers import AutoConfig, DynamicCache, PreTrainedModel
from weights import weights_sha256

PLACEHOLDERS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
"""Fields of a configuration that name ids which only a prompt may hold."""


@dataclass(frozen=True)
class Loading:
    """What to serve, and how."""

    folder: Path
    device: str = "cpu"
    dtype: str = "float32"
    context_length: int | None = None
    banned: tuple[str, ...] = ()
    """Tokens that are never sampled, beside the placeholders that the model's configuration names."""


@dataclass
class Batch:
    """Sequences that run together. Shapes: keys and values [B, heads, L, size] a layer, mask [B, L], positions [B]."""

    layers: list[tuple[torch.Tensor, torch.Tensor]]
    mask_BL: torch.Tensor
    positions_B: torch.Tensor
    """Of the token that comes next."""

    def __len__(self) -> int:
        return len(self.positions_B)

    def joined(self, other: Batch) -> Batch:
        """Both, the shorter one padded on its left."""
        length = max(self.mask_BL.shape[1], other.mask_BL.shape[1])
        layers = [
            tuple(
                torch.cat([_padded(mine, length), _padded(its, length)]) for mine, its in zip(ours, theirs, strict=True)
            )
            for ours, theirs in zip(self.layers, other.layers, strict=True)
        ]
        mask_BL = torch.cat([_padded_mask(self.mask_BL, length), _padded_mask(other.mask_BL, length)])
        return Batch(layers, mask_BL, torch.cat([self.positions_B, other.positions_B]))

    def kept(self, rows: Sequence[int]) -> Batch:
        """Some of its sequences, without columns that are padding for all of them."""
        index = torch.tensor(rows, device=self.mask_BL.device)
        mask_BL = self.mask_BL[index]
        start = int(mask_BL.any(0).int().argmax())
        layers = [(keys[index, :, start:], values[index, :, start:]) for keys, values in self.layers]
        return Batch(layers, mask_BL[:, start:], self.positions_B[index])


class TokenModel:
    """The model that is served."""

    def __init__(self, loading: Loading, model: PreTrainedModel) -> None:
        self.model = model
        self.folder = loading.folder
        self.config = model.config
        self.text_config = model.config.get_text_config()
        tokenizer_json = (loading.folder / "tokenizer.json").read_bytes()
        self.tokenizer_sha256 = hashlib.sha256(tokenizer_json).hexdigest()
        self.vocab_size: int = self.text_config.vocab_size
        self.context_length = loading.context_length or self.text_config.max_position_embeddings
        self.stop_ids = _stop_ids(model)
        self.banned_ids = _banned_ids(model, loading)
        self.weights_sha256 = weights_sha256(model)
        ban(model, self.banned_ids)

    @classmethod
    def load(cls, loading: Loading) -> TokenModel:
        """Read a folder that `save_pretrained` wrote, `tokenizer.json` beside it.

        Raises: SystemExit if weights are missing or left over, naming them.
        """
        name = (AutoConfig.from_pretrained(loading.folder).architectures or ["none"])[0]
        kind = getattr(transformers, name, None)
        if kind is None:
            raise SystemExit(f"{loading.folder}/config.json names the architecture {name}, which transformers lacks")
        dtype = getattr(torch, loading.dtype)
        model, told = kind.from_pretrained(loading.folder, dtype=dtype, output_loading_info=True)
        if wrong := {kind: keys for kind, keys in told.items() if keys}:
            raise SystemExit(f"The weights in {loading.folder} are not those of its config.json: {wrong}")
        return cls(loading, model.to(loading.device).eval().requires_grad_(requires_grad=False))

    @torch.inference_mode()
    def prefill(
        self, prompts: Sequence[Sequence[int]], pictures: Sequence[Pictures | None]
    ) -> tuple[torch.Tensor, Batch]:
        """Run whole prompts.

        Returns: the logits behind each, float32[B, V], and the batch that goes on from there.
        """
        device = self.model.device
        length = max(map(len, prompts))
        ids_BL = torch.zeros(len(prompts), length, dtype=torch.long)
        mask_BL = torch.zeros(len(prompts), length, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids_BL[row, length - len(prompt) :] = torch.tensor(prompt)
            mask_BL[row, length - len(prompt) :] = 1
        ids_BL, mask_BL = ids_BL.to(device), mask_BL.to(device)
        positions = (mask_BL.cumsum(-1) - 1).clamp(min=0)
        nexts_B = mask_BL.sum(-1)
        seen = [each for each in pictures if each is not None]
        more: dict[str, torch.Tensor] = {}
        if seen:
            more = self._pictured(ids_BL, seen)
            positions, deltas = self.model.model.get_rope_index(
                ids_BL, more["mm_token_type_ids"], image_grid_thw=more["image_grid_thw"], attention_mask=mask_BL
            )
            nexts_B = nexts_B + deltas.view(-1)
        cache = DynamicCache(config=self.config)
        logits_BV = self._run(ids_BL, mask_BL, positions, cache, more)
        return logits_BV, Batch(_layers(cache), mask_BL, nexts_B)

    @torch.inference_mode()
    def step(self, batch: Batch, ids: Sequence[int]) -> tuple[torch.Tensor, Batch]:
        """Run the token just drawn for each sequence.

        Returns: the logits behind it, float32[B, V], and the batch that goes on from there.
        """
        ids_B1 = torch.tensor(ids, device=self.model.device)[:, None]
        mask_BL = torch.cat([batch.mask_BL, torch.ones_like(ids_B1)], dim=1)
        cache = DynamicCache(config=self.config)
        for layer, (keys, values) in zip(cache.layers, batch.layers, strict=True):
            layer.keys, layer.values, layer.is_initialized = keys, values, True
            layer.dtype, layer.device = keys.dtype, keys.device
        logits_BV = self._run(ids_B1, mask_BL, batch.positions_B[:, None], cache, {})
        return logits_BV, Batch(_layers(cache), mask_BL, batch.positions_B + 1)

    def _run(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        positions: torch.Tensor,
        cache: DynamicCache,
        more: dict[str, torch.Tensor],
    ) -> torch.Tensor:
        answer = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
            **more,
        )
        return answer.logits[:, -1].float()

    def _pictured(self, ids_BL: torch.Tensor, seen: Sequence[Pictures]) -> dict[str, torch.Tensor]:
        device = ids_BL.device
        return {
            "pixel_values": torch.cat([each.pixel_values for each in seen]).to(device, self.model.dtype),
            "image_grid_thw": torch.cat([each.grid_thw for each in seen]).to(device),
            "mm_token_type_ids": (ids_BL == self.config.image_token_id).int(),
        }


def _layers(cache: DynamicCache) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(layer.keys, layer.values) for layer in cache.layers]


def _padded(states: torch.Tensor, length: int) -> torch.Tensor:
    return torch.nn.functional.pad(states, (0, 0, length - states.shape[2], 0))


def _padded_mask(mask_BL: torch.Tensor, length: int) -> torch.Tensor:
    return torch.nn.functional.pad(mask_BL, (length - mask_BL.shape[1], 0))


def _stop_ids(model: PreTrainedModel) -> tuple[int, ...]:
    """What ends an answer, as the checkpoint says."""
    for config in (model.generation_config, model.config.get_text_config()):
        found = getattr(config, "eos_token_id", None)
        if found is not None:
            return tuple(sorted([found] if isinstance(found, int) else found))
    return ()


def _banned_ids(model: PreTrainedModel, loading: Loading) -> tuple[int, ...]:
    own = [getattr(model.config, name, None) for name in PLACEHOLDERS]
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(loading.folder / "tokenizer.json"))
    vocabulary = tokenizer.get_vocab()
    if strangers := [text for text in loading.banned if text not in vocabulary]:
        raise SystemExit(f"--ban names {strangers[0]!r}, which is no token of {loading.folder}/tokenizer.json")
    told = (vocabulary[text] for text in loading.banned)
    return tuple(sorted({each for each in itertools.chain(own, told) if each is not None}))
