"""The bytes of images, and how images and placeholders pair up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnstile.conversation import Call, Image, Media, Message, Role, Text
from turnstile.errors import CallerError, StoreError
from turnstile.exchange.images import (
    Gallery,
    ImageLimits,
    Shown,
    expanded_length,
    images_of,
    keep_added,
    refuse_beyond,
    shown_in,
    with_media,
)
from turnstile.generation import Head, Prompt, Root
from turnstile.history.forest import Forest
from turnstile.journal import ShownImage
from turnstile.protocols.media import with_size
from turnstile.reasons import RootReason
from turnstile.store import Blobs
from turnstile.tokens import NO_IDS, IdRun

PAD = 7
PROMPT = Prompt(
    Head("f", "m", "t", 100, "c", "{}", ()), None, NO_IDS, IdRun.of([1, PAD, 2, PAD]), (), Root(RootReason.FIRST_CALL),
    placeholder_id=PAD,
)  # fmt: skip


def test_images_stand_in_the_order_of_the_conversation_each_as_often_as_it_is_shown() -> None:
    one, two = Image("11" * 32, "image/png"), Image("22" * 32, "image/png")
    messages = (Message(Role.USER, (one, Text("and"), two)), Message(Role.ASSISTANT), Message(Role.TOOL, (one,)))
    assert images_of(messages) == (one, two, one)


async def test_bytes_that_the_request_brought_are_taken_before_those_of_the_store(seeing: Any, tmp_path: Path) -> None:
    one, two = seeing.picture(28, 28), seeing.picture(56, 28)
    gallery = Gallery(Blobs(tmp_path))
    await gallery.keep([two, two])
    prompt = await with_media(PROMPT, [one.image, two.image, one.image], [one], gallery)
    assert prompt.media == (one, two, one)


async def test_bytes_that_are_nowhere_are_an_error_and_need_not_be_had_without_a_store(
    seeing: Any, tmp_path: Path
) -> None:
    one = seeing.picture(28, 28)
    with pytest.raises(StoreError) as caught:
        await with_media(PROMPT, [one.image], [], Gallery(Blobs(tmp_path)))
    assert caught.value.code == "blob_missing"
    assert (await with_media(PROMPT, [one.image], [], None)).media == (Media(one.sha256, "image/png", b""),)


async def test_what_is_held_is_not_written_again(seeing: Any, tmp_path: Path) -> None:
    one, two = seeing.picture(28, 28), seeing.picture(56, 28)
    prompt = await with_media(PROMPT, [one.image, two.image], [one, two], None)
    added = ShownImage(3, two.sha256, "image/png", len(two.data), 56, 28)
    held = shown_in(prompt, Forest()).added[:1]
    await keep_added(Gallery(Blobs(tmp_path)), prompt, Shown(held, (added,)))  # type: ignore[arg-type]
    assert (Blobs(tmp_path).has(one.sha256), Blobs(tmp_path).has(two.sha256)) == (False, True)


async def test_each_image_is_told_the_place_of_its_placeholder(seeing: Any) -> None:
    one, two = seeing.picture(28, 28), seeing.picture(56, 28)
    prompt = await with_media(PROMPT, [one.image, two.image], [one, two], None)
    shown = shown_in(prompt, Forest())
    assert shown == Shown(
        (),
        (
            ShownImage(1, one.sha256, "image/png", len(one.data), 28, 28),
            ShownImage(3, two.sha256, "image/png", len(two.data), 56, 28),
        ),
    )
    assert expanded_length(prompt, shown, Forest()) == 4


@pytest.mark.parametrize("count", [1, 3])
async def test_placeholders_and_images_that_do_not_pair_up_are_refused(seeing: Any, count: int) -> None:
    one = seeing.picture(28, 28)
    prompt = await with_media(PROMPT, [one.image] * count, [one], None)
    with pytest.raises(CallerError) as caught:
        shown_in(prompt, Forest())
    assert (caught.value.code, caught.value.problem) == (
        "images_not_supported", f"The prompt would have 2 image placeholders for {count} images",
    )  # fmt: skip


def test_a_prompt_without_images_shows_none() -> None:
    assert shown_in(PROMPT, Forest()) == Shown()
    assert expanded_length(PROMPT, Shown(), Forest()) == 4


def looking(*media: Media) -> Call:
    return Call("openai.chat", "m", (Message(Role.USER, tuple(each.image for each in media)),), media=media)


def test_as_many_images_as_are_served_pass_and_one_more_is_refused(seeing: Any) -> None:
    call = looking(seeing.picture(28, 28), seeing.picture(56, 28))
    refuse_beyond(ImageLimits(count=2), call)
    with pytest.raises(CallerError) as caught:
        refuse_beyond(ImageLimits(count=1), call)
    assert (caught.value.param, caught.value.problem) == (
        "messages[0]", "`messages[0]` is past the first 1 images",
    )  # fmt: skip


def test_an_image_of_too_many_pixels_is_refused_whatever_its_bytes(seeing: Any) -> None:
    bomb = with_size(Media("ab" * 32, "image/png", seeing.png(1, 1).replace(b"\0\0\0\1\0\0\0\1", b"\0\0\xff\0" * 2, 1)))
    with pytest.raises(CallerError) as caught:
        refuse_beyond(ImageLimits(), looking(bomb))
    assert "65280 x 65280 pixels; 64000000 are served" in caught.value.problem
    refuse_beyond(ImageLimits(pixels=65280 * 65280), looking(bomb))


def test_an_image_that_does_not_say_how_large_it_is_is_refused() -> None:
    with pytest.raises(CallerError, match="does not say how large it is"):
        refuse_beyond(ImageLimits(), looking(Media("ab" * 32, "image/png", b"\x89PNG\r\n\x1a\n")))


def test_an_image_that_is_only_named_was_measured_when_it_came() -> None:
    named = Call("openai.responses", "m", (Message(Role.USER, (Image("ab" * 32, "image/png"),)),))
    refuse_beyond(ImageLimits(), named)
