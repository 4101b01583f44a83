"""What vLLM may answer to a prompt with images, right and wrong."""

from __future__ import annotations

import msgspec
import pytest

from turnstile.conversation import Media
from turnstile.engines.vllm_images import expanded, refuse_miscounted
from turnstile.engines.vllm_shapes import PlaceholderRange
from turnstile.errors import EchoMismatch, EngineError
from turnstile.expansion import ExpandedIds, ImageRange
from turnstile.tokens import IdRun

IMAGE = Media("s", "image/png", b"x")
PAD = 9


@pytest.fixture
def shown(prompt):
    """A prompt that shows so many images."""

    def _shown(ids, images):
        return msgspec.structs.replace(prompt(ids), media=(IMAGE,) * images, placeholder_id=PAD)

    return _shown


def ranges(*pairs):
    return tuple(PlaceholderRange(offset, length) for offset, length in pairs)


def test_each_range_is_an_image(shown):
    found = expanded(shown([1, PAD, 2, PAD], 2), IdRun.of([1, PAD, PAD, 2, PAD, 7, PAD]), ranges((4, 3), (1, 2)))
    assert found == ExpandedIds(IdRun.of([1, PAD, PAD, 2, PAD, 7, PAD]), (ImageRange(1, 2, 2), ImageRange(4, 3, 2)))


@pytest.mark.parametrize(
    ("sent", "images", "echo", "places", "said"),
    [
        # Two placeholders and one image: only the first is expanded.
        ([1, PAD, 2, PAD], 1, [1, PAD, PAD, 2, PAD], [(1, 2)], "placeholders stand outside"),
        # Expanded ids that are expanded once more.
        ([1, PAD, PAD, 2], 1, [1, PAD, PAD, PAD, 2], [(1, 2)], "placeholders stand outside"),
        # An image that went nowhere.
        ([1, PAD, 2], 1, [1, PAD, 2], [], "0 images stand there, and 1 were sent"),
        ([1, PAD, 2], 1, [1, PAD, PAD, 3], [(1, 2)], "differ from the 3 sent (at=2)"),
        ([1, PAD, 2], 1, [1, 5, 5, 2], [(1, 2)], "holds no placeholder"),
    ],
)
def test_a_prompt_that_was_run_otherwise_is_found(shown, sent, images, echo, places, said):
    with pytest.raises(EchoMismatch) as wrong:
        expanded(shown(sent, images), IdRun.of(echo), ranges(*places))
    assert said in wrong.value.problem


@pytest.mark.parametrize("places", [[(1, 9)], [(1, 2), (2, 1)]])
def test_ranges_that_cannot_be_are_no_answer(shown, places):
    with pytest.raises(EngineError, match="mm_placeholders"):
        expanded(shown([1, PAD, PAD], len(places)), IdRun.of([1, PAD, PAD]), ranges(*places))


def test_ranges_for_a_prompt_without_images_are_no_answer(prompt):
    with pytest.raises(EngineError, match="without images"):
        expanded(prompt([1]), IdRun.of([1]), ranges((0, 1)))


def test_a_prompt_goes_out_only_with_one_image_for_each_placeholder(shown, prompt):
    refuse_miscounted(shown([1, PAD, 2], 1))
    refuse_miscounted(prompt([1, PAD, PAD]))
    for ids, images in (([1, PAD, PAD], 1), ([1, 2], 1), ([1, PAD], 0)):
        with pytest.raises(EngineError) as refused:
            refuse_miscounted(shown(ids, images))
        assert refused.value.code == "images_misplaced"
