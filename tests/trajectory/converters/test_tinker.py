"""Tinker."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def with_image(group) -> dict[str, Any]:
    one = group[0]
    one["sequences"] = one["sequences"][:1]
    one["sequences"][0]["media"] = [
        {"sha256": "ab" * 32, "mime": "image/jpeg", "kind": "image", "offset": 13, "length": 2, "num_tokens": 2}
        | {"placeholder_id": 50, "width": None, "height": None}
    ]
    return one


def test_an_image_is_a_chunk_between_texts_and_has_no_targets(with_image, samples_of) -> None:
    (datum,) = samples_of("tinker", [with_image], advantage="reward")
    assert datum["model_input"]["chunks"] == [
        {"type": "encoded_text", "tokens": [1, 10, 11, 2, 3, 1, 20, 30, 31, 40, 2, 3, 1]},
        {"type": "image", "format": "jpeg", "expected_tokens": 2, "sha256": "ab" * 32, "path": f"ab/{'ab' * 32}"},
        {"type": "encoded_text", "tokens": [2, 3, 1, 20, 60, 61]},
    ]
    targets = datum["loss_fn_inputs"]["target_tokens"]["data"]
    assert targets == [10, 11, 2, 3, 1, 20, 30, 31, 40, 2, 3, 1, 0, 0, 2, 3, 1, 20, 60, 61, 2]


@pytest.mark.parametrize(
    ("fields", "code"), [({"mime": "image/webp"}, "image_format"), ({"num_tokens": 1}, "media_mismatch")]
)
def test_an_image_that_has_no_chunk_is_refused(fields, code: str, with_image, code_of) -> None:
    with_image["sequences"][0]["media"][0] |= fields
    assert code_of("tinker", [with_image], advantage="reward") == code


def test_weights_are_in_the_advantages(group, samples_of) -> None:
    group[0]["sequences"][1]["segments"][-1]["weight"] = 0.5
    advantages = samples_of("tinker")[1]["loss_fn_inputs"]["advantages"]
    assert advantages == {"data": [0.0] * 18 + [0.25, 0.25], "dtype": "float32", "shape": [20]}
