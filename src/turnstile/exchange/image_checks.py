"""What an engine says it ran for a prompt with images, against what it was sent (law 2).

Engines answer 200 with a wrong prompt: ids that were expanded already are expanded again, placeholders without an
image are run as plain tokens, the second of two placeholders is left as it was. Each of these is an error here. An
engine that says nothing makes the turn incomplete; nothing is ever guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from turnstile.errors import EchoMismatch
from turnstile.exchange.checks import Verdict
from turnstile.exchange.images import Shown
from turnstile.expansion import ExpandedIds
from turnstile.generation import Generation, Note, Prompt
from turnstile.history.pictures import run_ids
from turnstile.journal import ImageRun, SampledChoice
from turnstile.reasons import ImageFault, IncompleteReason, NoteCode
from turnstile.tokens import IdRun, first_difference


def with_images(verdict: Verdict, prompt: Prompt, shown: Shown, generation: Generation) -> Verdict:
    """A verdict with what was run for the prompt's images; incomplete if the engine does not say.

    Raises: EchoMismatch naming a word of `ImageFault`.
    """
    if not prompt.media:
        return verdict
    runs = image_runs(prompt, shown, generation)
    if generation.expanded is not None:
        return msgspec.structs.replace(verdict, image_runs=runs)
    return msgspec.structs.replace(
        verdict,
        incomplete=(*verdict.incomplete, IncompleteReason.EXPANSION_UNKNOWN),
        notes=(*verdict.notes, Note(NoteCode.ECHO_UNVERIFIED, f"{len(prompt.media)} images")),
    )


def image_runs(prompt: Prompt, shown: Shown, generation: Generation) -> tuple[ImageRun, ...]:
    """What was run for the images of a prompt, once all of it is right.

    Args:
        prompt: with its media.
        shown: which of them are held, and what was run for those before.
        generation: what the engine answered.

    Returns: the runs of the images that the call adds, and of those right before them that were not known; empty if
        there are none or the engine does not say.

    Raises: EchoMismatch naming a word of `ImageFault`.
    """
    if not prompt.media or prompt.placeholder_id is None:
        return ()
    expanded = generation.expanded
    if expanded is None:
        # An echo of the ids as they were sent says that no image was put in, whatever else the engine leaves unsaid.
        if generation.prompt_echo_T is not None and generation.prompt_echo_T == prompt.ids_T:
            raise _fault(ImageFault.IMAGE_NOT_RUN, "echoed the prompt as it was sent, without its images")
        return ()
    _check_places(prompt, prompt.placeholder_id, expanded, generation.usage.prompt_tokens)
    runs = tuple(
        _run(expanded.run(number), each.num_tokens, prompt.placeholder_id)
        for number, each in enumerate(expanded.ranges)
    )
    for number, (held, run) in enumerate(zip(shown.held, runs, strict=False)):
        if held.run is not None and held.run != run:
            was = f"{held.run.length} ids, {run.length} now"
            raise _fault(ImageFault.IMAGE_CHANGED, f"ran image {number} as other ids than before: {was}")
    unknown = next((number for number, held in enumerate(shown.held) if held.run is None), len(shown.held))
    return runs[unknown:]


def _check_places(prompt: Prompt, placeholder_id: int, expanded: ExpandedIds, counted: int) -> None:
    if len(expanded.ranges) != len(prompt.media):
        raise _fault(ImageFault.IMAGE_COUNT, f"put in {len(expanded.ranges)} images, but was given {len(prompt.media)}")
    for number, each in enumerate(expanded.ranges):
        run = expanded.run(number)
        if run == IdRun.of((placeholder_id,)):
            raise _fault(ImageFault.IMAGE_NOT_RUN, f"left the placeholder of image {number} as it was sent")
        found = Counter(run.tolist())
        # Most models repeat the placeholder itself; some print it once, beside one other id for each embedding.
        if placeholder_id not in found or each.num_tokens not in found.values():
            detail = f"ran {len(run)} ids for image {number} that are not {each.num_tokens} of its placeholder"
            raise _fault(ImageFault.IMAGE_RUN_BROKEN, detail)
    at = first_difference(prompt.ids_T, expanded.collapsed(placeholder_id))
    if at is not None:
        raise _fault(ImageFault.IMAGE_IN_WRONG_PLACE, f"ran another prompt around its images from id {at} on")
    if counted != len(expanded):
        raise _fault(ImageFault.IMAGE_TOKENS_COUNTED, f"counted {counted} prompt ids, but echoed {len(expanded)}")


def _run(ids: IdRun, num_tokens: int, placeholder_id: int) -> ImageRun:
    plain = ImageRun(len(ids), num_tokens)
    return plain if run_ids(plain, placeholder_id) == ids else ImageRun(len(ids), num_tokens, ids)


def check_agreement(choices: Sequence[SampledChoice]) -> None:
    """See that the choices of a call were given its images alike.

    Raises: EchoMismatch if they were not.
    """
    told = {choice.image_runs for choice in choices if choice.image_runs}
    if len(told) > 1:
        raise _fault(ImageFault.IMAGE_CHOICES_DIFFER, "ran the images of one prompt as different ids")


def _fault(fault: ImageFault, detail: str) -> EchoMismatch:
    return EchoMismatch(
        f"The engine {detail} ({fault})",
        "Serve the model with an engine and processor settings that stay as they are, and with nothing in between",
    )
