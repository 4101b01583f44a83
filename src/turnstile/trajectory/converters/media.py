"""Images of a sequence for trainers that take them beside exact ids: by hash, never by pixels.

A trainer's own processor makes the pixels from the bytes as the client sent them. It must count as many embeddings as
the engine did, which `check_embeddings` asks.
"""

from __future__ import annotations

from turnstile.errors import CallerError
from turnstile.trajectory.format import Fields
from turnstile.trajectory.shapes import MediaEntry, Sequence


def image_of(entry: MediaEntry) -> Fields:
    """One image: where its bytes lie below `FILE.media/`, and how many embeddings the engine made of it."""
    return {
        "sha256": entry.sha256,
        "path": f"{entry.sha256[:2]}/{entry.sha256}",
        "mime": entry.mime,
        "num_tokens": entry.num_tokens,
    }


def images_of(sequence: Sequence) -> list[Fields]:
    """All images of a sequence, in the order of their tokens."""
    return [image_of(entry) for entry in sequence.media]


def check_embeddings(entry: MediaEntry, counted: int) -> None:
    """Make sure that a trainer's processor makes as many embeddings of an image as the engine did.

    Raises: CallerError `media_mismatch`.
    """
    if counted != entry.num_tokens:
        raise CallerError(
            f"The trainer's processor makes another number of embeddings of image {entry.sha256[:12]}: "
            f"mm_tokens want={entry.num_tokens} got={counted}",
            "Give it the `mm_processor_kwargs` of the head, and the bytes as they are, not resized",
            code="media_mismatch",
        )
