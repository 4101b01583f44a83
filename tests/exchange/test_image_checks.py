"""Every way in which an engine answers 200 and ran another prompt than the one with its images."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from turnstile.conversation import Media, Message, ReplyFinish, Role, Usage
from turnstile.errors import EchoMismatch
from turnstile.exchange.checks import Verdict
from turnstile.exchange.image_checks import check_agreement, image_runs, with_images
from turnstile.exchange.images import Shown
from turnstile.expansion import ExpandedIds, ImageRange
from turnstile.generation import Finish, Generation, Head, LogprobsMode, Note, Prompt, Root
from turnstile.history.pictures import ImagePlace, Picture
from turnstile.journal import ImageRun, SampledChoice, ShownImage
from turnstile.reasons import ImageFault, IncompleteReason, NoteCode, RootReason
from turnstile.tokens import IdRun, LogprobRun

PAD = 7
BREAK = 8
ONE, TWO = Media("11" * 32, "image/png", b"1"), Media("22" * 32, "image/png", b"2")
HELD = IdRun.of([1, PAD, 2])
"""The first image is held, the second one is new."""
PROMPT = Prompt(
    Head("f", "m", "t", 100, "c", "{}", ()), None, HELD, IdRun.of([3, PAD, 4]), (), Root(RootReason.FIRST_CALL),
    media=(ONE, TWO), placeholder_id=PAD,
)  # fmt: skip
ADDED = (ShownImage(1, TWO.sha256, TWO.media_type, 1, None, None),)
FIRST_RUN, SECOND_RUN = ImageRun(2, 2), ImageRun(3, 2, IdRun.of([PAD, BREAK, PAD]))


def held(run: ImageRun | None) -> Shown:
    shown = ShownImage(1, ONE.sha256, ONE.media_type, 1, None, None)
    return Shown((Picture(ImagePlace("c0", 0), 1, shown, run),), ADDED)


def ran(ids: list[int], *ranges: tuple[int, int, int], counted: int | None = None) -> Generation:
    expanded = ExpandedIds(IdRun.of(ids), tuple(ImageRange(*each) for each in ranges))
    return Generation(
        ids_S=IdRun.of([9]),
        logprobs_S=LogprobRun.of([-0.5]),
        finish=Finish.LENGTH,
        engine_finish_reason="length",
        usage=Usage(len(ids) if counted is None else counted, 1),
        logprobs_mode=LogprobsMode.RAW,
        logprobs_temperature=1.0,
        expanded=expanded,
    )


RIGHT = ran([1, PAD, PAD, 2, 3, PAD, BREAK, PAD, 4], (1, 2, 2), (5, 3, 2))


def test_the_runs_of_the_images_that_a_call_adds_are_told_apart_from_plain_placeholders() -> None:
    assert image_runs(PROMPT, held(FIRST_RUN), RIGHT) == (SECOND_RUN,)


def test_a_held_image_whose_run_nobody_told_is_told_late() -> None:
    assert image_runs(PROMPT, held(None), RIGHT) == (FIRST_RUN, SECOND_RUN)


def test_a_model_that_prints_its_placeholder_once_beside_other_ids_for_embeddings_is_taken() -> None:
    right = ran([1, PAD, 5, 5, 5, 6, 2, 3, PAD, 5, 5, 4], (1, 5, 3), (8, 3, 2))
    runs = ImageRun(5, 3, IdRun.of([PAD, 5, 5, 5, 6])), ImageRun(3, 2, IdRun.of([PAD, 5, 5]))
    assert image_runs(PROMPT, held(None), right) == runs


WRONG: dict[str, tuple[Generation, ImageFault]] = {
    "two placeholders and one image": (ran([1, PAD, PAD, 2, 3, PAD, 4], (1, 2, 2)), ImageFault.IMAGE_COUNT),
    "two placeholders and one image, by runs": (
        ran([1, PAD, PAD, 2, 3, PAD, 4], (1, 2, 2), (5, 1, 1)),
        ImageFault.IMAGE_NOT_RUN,
    ),
    "placeholders run as plain tokens": (ran([1, PAD, 2, 3, PAD, 4]), ImageFault.IMAGE_COUNT),
    "placeholders run as plain tokens, by runs": (
        ran([1, PAD, 2, 3, PAD, 4], (1, 1, 1), (4, 1, 1)),
        ImageFault.IMAGE_NOT_RUN,
    ),
    "expanded ids expanded again": (
        ran([1, PAD, PAD, PAD, 2, 3, PAD, PAD, 4], (1, 2, 2), (6, 2, 2)),
        ImageFault.IMAGE_IN_WRONG_PLACE,
    ),
    "text between the images changed": (
        ran([1, PAD, PAD, 2, 9, PAD, PAD, 4], (1, 2, 2), (5, 2, 2)),
        ImageFault.IMAGE_IN_WRONG_PLACE,
    ),
    "a range that holds no placeholder": (
        ran([1, PAD, PAD, 2, 3, 9, 9, 4], (1, 2, 2), (5, 2, 2)),
        ImageFault.IMAGE_RUN_BROKEN,
    ),
    "a range with more embeddings than placeholders": (
        ran([1, PAD, PAD, 2, 3, PAD, PAD, 4], (1, 2, 2), (5, 2, 3)),
        ImageFault.IMAGE_RUN_BROKEN,
    ),
    "a held image larger than before": (
        ran([1, PAD, PAD, PAD, 2, 3, PAD, PAD, 4], (1, 3, 3), (6, 2, 2)),
        ImageFault.IMAGE_CHANGED,
    ),
    "another count than the echo": (
        ran([1, PAD, PAD, 2, 3, PAD, PAD, 4], (1, 2, 2), (5, 2, 2), counted=6),
        ImageFault.IMAGE_TOKENS_COUNTED,
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_echo_is_an_error_by_name(case: str) -> None:
    generation, fault = WRONG[case]
    with pytest.raises(EchoMismatch, match=f"\\({fault}\\)"):
        image_runs(PROMPT, held(FIRST_RUN), generation)


def test_an_engine_that_echoes_what_it_was_sent_has_run_no_image() -> None:
    echoed = msgspec.structs.replace(RIGHT, expanded=None, prompt_echo_T=PROMPT.ids_T)
    with pytest.raises(EchoMismatch, match="image_not_run"):
        image_runs(PROMPT, held(FIRST_RUN), echoed)


def test_an_engine_that_says_nothing_of_its_images_makes_the_turn_incomplete() -> None:
    silent = msgspec.structs.replace(RIGHT, expanded=None)
    assert with_images(Verdict(Finish.STOP, (), ()), PROMPT, held(FIRST_RUN), silent) == Verdict(
        Finish.STOP, (IncompleteReason.EXPANSION_UNKNOWN,), (Note(NoteCode.ECHO_UNVERIFIED, "2 images"),)
    )


def test_a_prompt_without_images_is_not_this_ones_to_check() -> None:
    plain = msgspec.structs.replace(PROMPT, media=())
    verdict = Verdict(Finish.STOP, (), ())
    assert with_images(verdict, plain, Shown(), RIGHT) is verdict
    assert image_runs(plain, Shown(), RIGHT) == ()


def test_the_choices_of_a_call_have_to_agree_on_its_images() -> None:
    def choice(at: int, *runs: ImageRun) -> SampledChoice:
        return SampledChoice(
            at, IdRun(), None, Message(Role.ASSISTANT), ReplyFinish.STOP, Finish.STOP, "", Usage(0, 0),
            LogprobsMode.NONE, None, image_runs=runs,
        )  # fmt: skip

    check_agreement([choice(0, FIRST_RUN), choice(1, FIRST_RUN), choice(2)])
    with pytest.raises(EchoMismatch, match="image_choices_differ"):
        check_agreement([choice(0, FIRST_RUN), choice(1, SECOND_RUN)])


def test_the_words_of_faults_are_all_met_here() -> None:
    checked: Callable[[ImageFault], bool] = {fault for _, fault in WRONG.values()}.__contains__
    assert [fault for fault in ImageFault if not checked(fault)] == [ImageFault.IMAGE_CHOICES_DIFFER]
