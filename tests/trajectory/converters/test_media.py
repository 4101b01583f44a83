"""Images for trainers that take them beside exact ids."""

from __future__ import annotations

import pytest

from turnstile.errors import CallerError
from turnstile.trajectory.converters.media import check_embeddings, image_of
from turnstile.trajectory.shapes import MediaEntry

ENTRY = MediaEntry(
    sha256="ab" * 32, mime="image/png", kind="image", offset=4, length=875, num_tokens=875, placeholder_id=9
)


def test_an_image_is_named_by_its_bytes() -> None:
    assert image_of(ENTRY) == {
        "sha256": "ab" * 32,
        "path": f"ab/{'ab' * 32}",
        "mime": "image/png",
        "num_tokens": 875,
    }


def test_case_i4_a_processor_that_counts_otherwise_is_told() -> None:
    check_embeddings(ENTRY, 875)
    with pytest.raises(CallerError, match="mm_tokens want=875 got=920") as refused:
        check_embeddings(ENTRY, 920)
    assert refused.value.code == "media_mismatch"
