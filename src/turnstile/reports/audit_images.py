"""Images of a sequence as a model of transformers wants them: from the bytes that the client sent."""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import Any, cast, final

import msgspec

from turnstile.errors import CallerError
from turnstile.reports.audit_subject import Subject
from turnstile.trajectory.format import MediaEntry
from turnstile.trajectory.side_files import SideKind, SideSource


@final
class ImageReader:
    """Makes pixel values with the processor of a model's folder.

    Done for processors that say their grid, as those of Qwen's vision models do: then the number of tokens of each
    image is known and compared with the recorded one.
    """

    def __init__(self, folder: Path) -> None:
        """Nothing is loaded before the first image."""
        self._folder = folder
        self._processor: Any = None

    def inputs(self, subject: Subject, ids: list[int], side: SideSource) -> dict[str, Any]:
        """The arguments of the model beside the ids; the bytes come from `side`.

        Raises: StoreError if bytes are not there; CallerError `audit_model_mismatch` if the processor is of another
            kind or makes another number of tokens.
        """
        torch = importlib.import_module("torch")
        made = [self._made(subject, entry, side) for entry in subject.media]
        kinds = torch.zeros(1, len(ids), dtype=torch.int64)
        for entry in subject.media:
            run = slice(entry.offset, entry.offset + entry.length)
            kinds[0, run] = torch.tensor([int(token_id == entry.placeholder_id) for token_id in ids[run]])
        return {
            "pixel_values": torch.cat([each["pixel_values"] for each in made]),
            "image_grid_thw": torch.cat([each["image_grid_thw"] for each in made]),
            "mm_token_type_ids": kinds,
        }

    def _made(self, subject: Subject, entry: MediaEntry, side: SideSource) -> dict[str, Any]:
        if entry.kind != "image":
            raise _other(f"Sequence {subject.sequence_id} holds a {entry.kind}", "Only images can be recomputed")
        data = side.side_bytes(SideKind.MEDIA, entry.sha256)
        processor = self._loaded()
        image = importlib.import_module("PIL.Image").open(io.BytesIO(data)).convert("RGB")
        kwargs = cast("dict[str, Any]", msgspec.json.decode(subject.mm_processor_kwargs))
        made = cast("dict[str, Any]", processor(images=[image], return_tensors="pt", **kwargs))
        if "image_grid_thw" not in made:
            raise _other("The model's processor does not say its grid", "Audit the sequences without images")
        tokens = int(made["image_grid_thw"][0].prod()) // int(processor.merge_size) ** 2
        if tokens != entry.num_tokens:
            raise _other(
                f"The processor of {self._folder} makes {tokens} tokens of image {entry.sha256[:12]}, and "
                f"{entry.num_tokens} are recorded in sequence {subject.sequence_id}",
                "Give the folder whose preprocessor_config.json the engine used",
            )
        return made

    def _loaded(self) -> Any:  # noqa: ANN401 - a processor of transformers
        if self._processor is None:
            transformers = importlib.import_module("transformers")
            try:
                self._processor = transformers.AutoImageProcessor.from_pretrained(
                    str(self._folder), local_files_only=True
                )
            except (OSError, ValueError, ImportError) as error:
                first = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise CallerError(
                    f"The image processor of {self._folder} cannot be loaded: {first[:300]}",
                    "Give a folder with preprocessor_config.json; `pip install pillow torchvision` if it says so",
                    code="audit_model_unreadable",
                ) from error
        return self._processor


def _other(problem: str, remedy: str) -> CallerError:
    return CallerError(problem, remedy, code="audit_model_mismatch")
