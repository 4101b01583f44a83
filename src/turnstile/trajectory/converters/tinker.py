"""Tinker 0.38.0: a `Datum` for each sequence, shifted by one as its losses want it.

Source: tinker/types/datum.py, tensor_data.py and image_chunk.py of the 0.38.0 wheel, and
tinker_cookbook/rl/data_processing.py::trajectory_to_data of 0.5.8. Inputs are all ids but the last, everything else
all but the first; a masked token has advantage 0.
"""

from __future__ import annotations

from turnstile.errors import CallerError
from turnstile.trajectory.converters.atropos import weighted_advantages_T
from turnstile.trajectory.converters.base import Facts, Media, Reward, Rows, Temperature, Weights
from turnstile.trajectory.converters.media import image_of
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row
from turnstile.trajectory.format import Fields
from turnstile.trajectory.shapes import MediaEntry

_FORMATS = {"image/png": "png", "image/jpeg": "jpeg"}


class Tinker:
    """Each sample holds a datum's chunks and, for each of its arrays, the arguments of a `TensorData`."""

    name = "tinker"
    facts = Facts(
        trainer="Tinker",
        rows=Rows.TOGETHER,
        reward=Reward.TURNED_INTO_ADVANTAGES,
        weights=Weights.CARRIED,
        temperature=Temperature.UNKNOWN,
        media=Media.CARRIED,
    )

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """For `importance_sampling`, `ppo` and `cispo`; an image chunk's bytes lie under its `path`.

        Raises: CallerError `media_mismatch`, `image_format` for images that Tinker has no chunk for.
        """
        del options
        (row,) = rows
        targets = row.ids_T
        for entry in row.sequence.media:
            targets[entry.offset : entry.offset + entry.length] = [0] * entry.length
        return {
            "model_input": {"chunks": _chunks(row)},
            "loss_fn_inputs": {
                "target_tokens": _tensor(targets, "int64"),
                "logprobs": _tensor(row.logprobs_T, "float32"),
                "advantages": _tensor(weighted_advantages_T(row), "float32"),
            },
        }


def _tensor(values_T: list[int] | list[float], dtype: str) -> Fields:
    return {"data": values_T[1:], "dtype": dtype, "shape": [len(values_T) - 1]}


def _chunks(row: Row) -> list[Fields]:
    ids, chunks, at = row.ids_T[:-1], list[Fields](), 0
    for entry in row.sequence.media:
        chunks += _text(ids[at : entry.offset])
        chunks.append(_image(row, entry))
        at = entry.offset + entry.length
    return chunks + _text(ids[at:])


def _text(ids: list[int]) -> list[Fields]:
    return [{"type": "encoded_text", "tokens": ids}] if ids else []


def _image(row: Row, entry: MediaEntry) -> Fields:
    if entry.mime not in _FORMATS:
        raise CallerError(
            f"Sequence {row.sequence.sequence_id} has an image of type {entry.mime}; Tinker takes PNG and JPEG",
            "Let the agent send one of these; an image is never re-encoded here",
            code="image_format",
        )
    if entry.length != entry.num_tokens:
        raise CallerError(
            f"Image {entry.sha256[:12]} of sequence {row.sequence.sequence_id} stands for {entry.length} ids with "
            f"separators between its {entry.num_tokens} embeddings; Tinker counts one a position",
            "Choose a trainer that is given the expanded ids, as verl is",
            code="media_mismatch",
        )
    return {"type": "image", "format": _FORMATS[entry.mime], "expected_tokens": entry.num_tokens} | {
        name: value for name, value in image_of(entry).items() if name in ("sha256", "path")
    }
