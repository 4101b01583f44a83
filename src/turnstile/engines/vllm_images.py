"""Prompts with images as vLLM takes and echoes them: collapsed ids in, expanded ids and ranges out.

The server answers 200 to prompts that it places images in wrongly: it expands the first placeholders and runs the
rest as plain tokens. So what goes out is counted, and what comes back is compared, range by range.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnstile.engines.vllm_shapes import PlaceholderRange, broken
from turnstile.errors import EchoMismatch, EngineError
from turnstile.expansion import ExpandedIds, ImageRange
from turnstile.generation import Prompt
from turnstile.tokens import IdRun, first_difference


def refuse_miscounted(prompt: Prompt) -> None:
    """A prompt has one placeholder for each image.

    Raises: EngineError `images_misplaced` if it has not: vLLM would put images in other places than they stand.
    """
    if prompt.placeholder_id is None:
        return
    count = prompt.ids_T.tolist().count(prompt.placeholder_id)
    if count != len(prompt.media):
        raise EngineError(
            f"The prompt has {count} image placeholders and {len(prompt.media)} images: vLLM would place them wrongly",
            remedy="Report it: a prompt like this should have been rendered anew",
            code="images_misplaced",
        )


def expanded(prompt: Prompt, echo_T: IdRun, ranges: Sequence[PlaceholderRange]) -> ExpandedIds:
    """The prompt as vLLM says it ran it.

    Args:
        prompt: as sent, one placeholder an image.
        echo_T: the ids that came back.
        ranges: where it says that the images stand.

    Raises: EchoMismatch unless there is a range for each image, placeholders stand in the ranges and nowhere else,
    and the ids with one placeholder for each range are those that were sent.
    """
    placeholder_id = prompt.placeholder_id
    if placeholder_id is None:
        raise broken("`mm_placeholders` for a prompt without images")
    if len(ranges) != len(prompt.media):
        raise _otherwise(f"it says that {len(ranges)} images stand there, and {len(prompt.media)} were sent")
    ids = echo_T.tolist()
    placed = [
        ImageRange(each.offset, each.length, ids[each.offset : each.offset + each.length].count(placeholder_id))
        for each in sorted(ranges, key=lambda each: each.offset)
    ]
    try:
        found = ExpandedIds(echo_T, tuple(placed))
    except ValueError as problem:
        raise broken(f"`mm_placeholders`: {problem}") from problem
    if not all(each.num_tokens for each in placed):
        raise _otherwise("a range that it says holds an image holds no placeholder")
    if sum(each.num_tokens for each in placed) != ids.count(placeholder_id):
        raise _otherwise("placeholders stand outside the ranges of images, so they were run as plain tokens")
    at = first_difference(prompt.ids_T, found.collapsed(placeholder_id))
    if at is not None:
        raise _otherwise(f"with one placeholder for each image its ids differ from the {len(prompt)} sent (at={at})")
    return found


def _otherwise(how: str) -> EchoMismatch:
    return EchoMismatch(
        f"The engine ran another prompt than it was given: {how} (echo_mismatch)",
        "Check that the engine serves the model whose tokenizer Turnstile was started with",
    )
