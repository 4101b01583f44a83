"""Pictures as Qwen's vision models take them: one placeholder of the prompt becomes as many as a picture has tokens."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from transformers import Qwen2VLImageProcessor

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


class PicturesRefused(Exception):
    """The pictures cannot be shown to the model as they came."""


@dataclass(frozen=True)
class Pictures:
    """The pictures of one prompt. Shapes: pixel_values float32[patches, values], grid_thw int64[pictures, 3]."""

    pixel_values: torch.Tensor
    grid_thw: torch.Tensor

    def behind(self, count: int) -> Pictures | None:
        """All but the first so many."""
        patches = int(self.grid_thw[:count].prod(-1).sum())
        rest = Pictures(self.pixel_values[patches:], self.grid_thw[count:])
        return rest if len(rest.grid_thw) else None


@dataclass(frozen=True)
class Expanded:
    """A prompt as the model runs it."""

    ids: list[int]
    ranges: list[tuple[int, int]]
    """Start and length of each picture's run of placeholders."""
    pictures: Pictures | None
    digests: list[str] = field(default_factory=list)
    """sha256 of each picture's bytes."""


class Eye:
    """Makes pictures of bytes, and room for them in prompts."""

    def __init__(self, folder: Path, placeholder_id: int) -> None:
        source = (folder / "preprocessor_config.json").read_bytes()
        self.placeholder_id = placeholder_id
        self.sha256 = hashlib.sha256(source).hexdigest()
        # The video processor wants torchvision; pictures do not.
        settings = {name: value for name, value in json.loads(source).items() if not name.endswith("_type")}
        settings.pop("processor_class", None)
        self._processor = Qwen2VLImageProcessor(**settings)

    @classmethod
    def of(cls, folder: Path, config: PreTrainedConfig) -> Eye | None:
        """The one that a checkpoint needs; None for a model of text."""
        placeholder_id = getattr(config, "image_token_id", None)
        if placeholder_id is None or not (folder / "preprocessor_config.json").is_file():
            return None
        return cls(folder, placeholder_id)

    @property
    def facts(self) -> dict[str, Any]:
        """What a client or trainer has to agree with."""
        processor = self._processor
        return {
            "placeholder_id": self.placeholder_id,
            "processor_sha256": self.sha256,
            "patch_size": processor.patch_size,
            "merge_size": processor.merge_size,
            "temporal_patch_size": processor.temporal_patch_size,
            "size": dict(processor.size),
        }

    def expanded(self, ids: list[int], images: list[bytes]) -> Expanded:
        """A prompt with one placeholder an image, as it is run.

        Raises: PicturesRefused if there are not as many placeholders as images, or if one cannot be read.
        """
        count = ids.count(self.placeholder_id)
        if count != len(images):
            raise PicturesRefused(
                f"the prompt has {count} placeholders ({self.placeholder_id}) and {len(images)} images"
            )
        if not images:
            return Expanded(ids, [], None)
        seen = self._processor(images=[_opened(data) for data in images], return_tensors="pt")
        grid_thw = seen["image_grid_thw"]
        counts = (grid_thw.prod(-1) // self._processor.merge_size**2).tolist()
        longer: list[int] = []
        ranges: list[tuple[int, int]] = []
        for token_id in ids:
            if token_id == self.placeholder_id:
                ranges.append((len(longer), counts[len(ranges)]))
                longer += [token_id] * ranges[-1][1]
            else:
                longer.append(token_id)
        digests = [hashlib.sha256(data).hexdigest() for data in images]
        return Expanded(longer, ranges, Pictures(seen["pixel_values"], grid_thw), digests)


def _opened(data: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(data)).convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as problem:
        raise PicturesRefused(f"an image of {len(data)} bytes cannot be read: {problem}") from problem
