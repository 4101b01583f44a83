"""TRL's GRPOTrainer with pictures: the least that has to be changed so that a `rollout_func` can bring them.

For TRL 1.16.0, and no other: `_generate` is a private method. There, the branch of `rollout_func` sets pictures to
None, and pictures that stand behind the prompt are taken from tools only. So rows are made as ever, the pictures are
put beside them as if tools had returned them, and what the trainer made of both is checked. See docs/train/trl.md.
"""

from __future__ import annotations

import io
from importlib.metadata import version
from typing import Any

import torch
from PIL import Image
from transformers import (
    PreTrainedTokenizerFast,
    ProcessorMixin,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessor,
)
from trl import GRPOTrainer

from turnstile.trajectory.format import Rollout, Sequence

TRL = "1.16.0"
BANNED = -1e9
"""The logit of an id that cannot be drawn: finite, so that 0 * log 0 is 0 in an entropy."""
PLACEHOLDERS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
"""Fields of a configuration that name ids which only a prompt may hold: the engine never samples them."""


class ImagesLost(Exception):
    """The trainer would train on other pictures than the model saw."""


class ImageProcessor(ProcessorMixin):
    """A processor for text and pictures: Qwen2.5-VL's own wants one for videos as well, which needs torchvision."""

    def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: str | None = None) -> None:
        """What `from_pretrained` calls."""
        super().__init__(image_processor, tokenizer, chat_template=chat_template)

    @classmethod
    def from_pretrained(cls, folder: Any, **_: Any) -> ImageProcessor:
        """Of a folder with tokenizer, template and `preprocessor_config.json`."""
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        return cls(Qwen2VLImageProcessor.from_pretrained(folder), tokenizer, tokenizer.chat_template)


class ImageModel:
    """Loads Qwen2.5-VL as the engine has it: placeholders of images have no probability."""

    @staticmethod
    def from_pretrained(folder: Any, **named: Any) -> Qwen2_5_VLForConditionalGeneration:
        """Of a checkpoint's folder."""
        model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, **named)
        forbid(model, [getattr(model.config, name) for name in PLACEHOLDERS])
        return model


def forbid(model: torch.nn.Module, ids: list[int]) -> None:
    """Give some ids no probability, by a bias of the head that is neither trained nor saved.

    TRL computes log-probabilities from the head's weight and bias, so a hook on its output would not be seen.
    """
    head = model.get_output_embeddings()
    bias = torch.zeros(head.weight.shape[0], dtype=head.weight.dtype)
    bias[ids] = BANNED
    del head.bias
    head.register_buffer("bias", bias, persistent=False)


class ImageTrainer(GRPOTrainer):
    """`rollout_func` has to be the loop's `Source`: it knows the rollouts that rows were made of."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        """As `GRPOTrainer`. Raises: SystemExit if TRL is not the one that this was written for."""
        if version("trl") != TRL:
            raise SystemExit(f"vision/trainer.py overrides a private method of trl {TRL}; this is {version('trl')}")
        super().__init__(*positional, **named)

    def _generate(self, prompts: list[Any]) -> Any:
        self.tools = []  # the rows have masks of their own, and nothing is left to be called
        ids, completion_ids, masks, completions, logprobs, extra, _, _ = super()._generate(prompts)
        images = self._images([[*p, *c] for p, c in zip(ids, completion_ids, strict=True)], extra["rollout_id"])
        self.tools = [_nothing]  # lets pictures in that stand anywhere in a row
        return ids, completion_ids, masks, completions, logprobs, extra, images, images

    def _images(self, rows: list[list[int]], rollout_ids: list[str]) -> list[list[Image.Image]]:
        """The pictures of each row, as Turnstile has them."""
        client, opened = self.rollout_func.client, {}
        found: list[list[Image.Image]] = []
        for row, rollout_id in zip(rows, rollout_ids, strict=True):
            wanted, owner = shown_in([client.taken[rollout_id], *client.taken.values()], row)
            for sha256 in set(wanted) - opened.keys():
                opened[sha256] = Image.open(io.BytesIO(client.media(owner, sha256))).convert("RGB")
            found.append([opened[sha256] for sha256 in wanted])
        return found

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """As it is. Raises: ImagesLost if it dropped pictures, as it does without a word when counts disagree."""
        made = super()._generate_and_score_completions(inputs)
        merged = self.processing_class.image_processor.merge_size**2
        ids = [made[name] for name in ("prompt_ids", "completion_ids")]
        places = sum(int((each == self._image_pad_token_id).sum()) for each in ids)
        embeddings = len(made["pixel_values"]) // merged if "pixel_values" in made else 0
        if places != embeddings or not places:
            raise ImagesLost(f"The rows have room for {places} embeddings of pictures, and there are {embeddings}")
        return made


def _nothing() -> None:
    """Stands for the tools that returned the pictures."""


def shown_in(rollouts: list[Rollout], row: list[int]) -> tuple[list[str], str]:
    """The pictures of the sequence that a row was made of, in order, by SHA-256, and the rollout that has them.

    The row's own rollout is asked first; a row that stands for an agent without an answer begins as another's does.
    Raises: ImagesLost if it is nobody's.
    """
    for rollout in rollouts:
        for sequence in rollout.sequences:
            if _begins(sequence, row):
                return [each.sha256 for each in sequence.media if each.offset < len(row)], rollout.rollout_id
    raise ImagesLost(f"{rollouts[0].rollout_id} has no sequence that begins with the {len(row)} ids of its row")


def _begins(sequence: Sequence, row: list[int]) -> bool:
    return sequence.token_ids[: len(row)].tolist() == row
