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
from images import Expanded, Pictures
from sampling import ban
from transformers import AutoConfig, DynamicCache, PreTrainedModel
from weights import weights_sha256

from store import Prefix, Running, full_attention, past_of

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


class TokenModel:
    """The model that is served."""

    def __init__(self, loading: Loading, model: PreTrainedModel) -> None:
        self.model = model
        self.folder = loading.folder
        self.config = model.config
        self.text_config = model.config.get_text_config()
        # One without it would turn every text into nothing and say nothing (transformers' AutoTokenizer).
        tokenizer_json = (loading.folder / "tokenizer.json").read_bytes()
        self.tokenizer_sha256 = hashlib.sha256(tokenizer_json).hexdigest()
        if not full_attention(model.config):
            raise SystemExit(f"{loading.folder}: layers with sliding windows or states of their own are not served")
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
    def prefill(self, prompts: Sequence[Expanded], prefixes: Sequence[Prefix | None]) -> tuple[torch.Tensor, Running]:
        """Run prompts behind what is known of their beginnings.

        Returns: the logits behind each, float32[B, V], and the sequences that go on from there.
        """
        device = self.model.device
        ids_BL, mask_BL = _left_padded([prompt.ids for prompt in prompts])
        positions, nexts_B = self._positions(ids_BL, mask_BL, prompts)
        starts = [0 if prefix is None else prefix.length for prefix in prefixes]
        width = max(len(prompt.ids) - start for prompt, start in zip(prompts, starts, strict=True))
        new_BL = torch.zeros(len(prompts), width, dtype=torch.long)
        for row, (prompt, start) in enumerate(zip(prompts, starts, strict=True)):
            new_BL[row, width - len(prompt.ids) + start :] = 1
        cache, past_BL = past_of(prefixes, self.text_config.num_hidden_layers)
        whole_BL = torch.cat([past_BL, new_BL], dim=1).to(device)
        more = self._pictures(prompts, starts)
        # What stands before a row's new ids is padding here: its keys and values are in the cache.
        ids = (ids_BL[:, -width:] * new_BL).to(device)
        logits_BV = self._run(ids, whole_BL, positions[..., -width:].to(device), cache, more)
        pairs = [(layer.keys, layer.values) for layer in cache.layers]
        return logits_BV, Running(pairs, whole_BL, nexts_B.to(device))

    @torch.inference_mode()
    def step(self, running: Running, ids: Sequence[int]) -> torch.Tensor:
        """Run the token just drawn for each sequence; the logits behind it, float32[B, V]."""
        ids_B1 = torch.tensor(ids, device=self.model.device)[:, None]
        running.grow()
        logits_BV = self._run(ids_B1, running.mask_BL, running.positions_B[:, None], running.cache, {})
        running.positions_B = running.positions_B + 1
        return logits_BV

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

    def _positions(
        self, ids_BL: torch.Tensor, mask_BL: torch.Tensor, prompts: Sequence[Expanded]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Of each id, [B, L] or for pictures [3, B, L], and of the one behind each prompt, [B]."""
        grids = [prompt.pictures.grid_thw for prompt in prompts if prompt.pictures is not None]
        if not grids:
            return (mask_BL.cumsum(-1) - 1).clamp(min=0), mask_BL.sum(-1)
        positions, deltas = self.model.model.get_rope_index(
            ids_BL,
            (ids_BL == self.config.image_token_id).int(),
            image_grid_thw=torch.cat(grids),
            attention_mask=mask_BL,
        )
        return positions, mask_BL.sum(-1) + deltas.view(-1)

    def _pictures(self, prompts: Sequence[Expanded], starts: Sequence[int]) -> dict[str, torch.Tensor]:
        """Those that stand behind what is known of each prompt."""
        seen: list[Pictures] = []
        for prompt, begin in zip(prompts, starts, strict=True):
            known = sum(start < begin for start, _ in prompt.ranges)
            rest = None if prompt.pictures is None else prompt.pictures.behind(known)
            seen += [] if rest is None else [rest]
        if not seen:
            return {}
        device = self.model.device
        return {
            "pixel_values": torch.cat([each.pixel_values for each in seen]).to(device, self.model.dtype),
            "image_grid_thw": torch.cat([each.grid_thw for each in seen]).to(device),
        }


def _left_padded(prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    length = max(map(len, prompts))
    ids_BL = torch.zeros(len(prompts), length, dtype=torch.long)
    mask_BL = torch.zeros(len(prompts), length, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids_BL[row, length - len(prompt) :] = torch.tensor(prompt)
        mask_BL[row, length - len(prompt) :] = 1
    return ids_BL, mask_BL


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
