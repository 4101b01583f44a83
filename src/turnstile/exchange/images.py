"""The images of a call: their bytes beside the prompt, in the order of the placeholders, kept before an engine hears.

An engine puts the n-th image into the place of the n-th placeholder. So the order is that of the conversation, and
what is held of it is compared with what the records say is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from turnstile.conversation import Call, Image, Media, Message, is_plain
from turnstile.errors import CallerError
from turnstile.generation import Match, Prompt
from turnstile.history.forest import Forest
from turnstile.history.pictures import Picture, pictures, run_lengths
from turnstile.journal import ShownImage
from turnstile.protocols.media import with_size
from turnstile.store import Blobs
from turnstile.tokens import IdRun


class Gallery:
    """The bytes of images, in a store; the disk is waited for in threads."""

    def __init__(self, blobs: Blobs) -> None:
        """Keep images among these blobs."""
        self._blobs = blobs

    async def keep(self, media: Sequence[Media]) -> None:
        """Make the bytes of images durable, each once.

        Raises: StoreError if they cannot be written.
        """
        await asyncio.to_thread(self._keep, {each.sha256: each.data for each in media})

    def _keep(self, by_hash: Mapping[str, bytes]) -> None:
        for sha256, data in by_hash.items():
            if not self._blobs.ask_for(sha256):
                self._blobs.put(data)

    async def media_of(self, image: Image) -> Media:
        """An image that was kept. Raises: StoreError if its bytes are not there."""
        data = await asyncio.to_thread(self._blobs.get, image.sha256)
        return with_size(Media(image.sha256, image.media_type, data))


class ImageLimits(msgspec.Struct, frozen=True):
    """How many images, and how large, a conversation may show."""

    count: int = 500
    pixels: int = 64_000_000
    """Of one image: width times height, as its header says. A small file may stand for any number of them."""


def refuse_beyond(limits: ImageLimits, call: Call) -> None:
    """Refuse what an engine would have to make too much room for.

    Raises: CallerError naming the first message with an image that is too many or too large, or does not say how
        large it is.
    """
    by_hash = {each.sha256: each for each in call.media}
    count = 0
    for at, message in enumerate(call.messages):
        for image in () if is_plain(message) else message.images:
            count += 1
            if count > limits.count:
                raise _beyond(at, f"is past the first {limits.count} images", "Send fewer images")
            found = by_hash.get(image.sha256)
            if found is None:
                continue
            if found.width is None or found.height is None:
                raise _beyond(at, "holds an image whose header does not say how large it is", "Encode it anew")
            if found.width * found.height > limits.pixels:
                size = f"{found.width} x {found.height} pixels"
                raise _beyond(at, f"holds an image of {size}; {limits.pixels} are served", "Send a smaller image")


def _beyond(at: int, problem: str, remedy: str) -> CallerError:
    param = f"messages[{at}]"
    return CallerError(f"`{param}` {problem}", remedy, code="invalid_value", param=param)


def shown_messages(held: Match) -> tuple[Message, ...]:
    """All messages of a request, the held ones as they were handed out."""
    parent = held.parent
    return held.new_M if parent is None else (*parent.history_M, parent.message, *held.new_M)


def images_of(messages: Sequence[Message]) -> tuple[Image, ...]:
    """The images of messages in the order of their placeholders; one that is shown twice is there twice."""
    return tuple(image for message in messages if not is_plain(message) for image in message.images)


async def with_media(prompt: Prompt, images: Sequence[Image], sent: Sequence[Media], gallery: Gallery | None) -> Prompt:
    """A prompt with the bytes of the images that its placeholders stand for.

    Args:
        prompt: with one placeholder for each image.
        images: of its conversation.
        sent: the bytes that the request brought; others are looked up, those of a named earlier answer for instance.
        gallery: where they are looked up; None: the bytes are not asked for.

    Raises: StoreError if an image that the request only names is not in the store.
    """
    by_hash = {each.sha256: each for each in sent}
    for image in images:
        if image.sha256 not in by_hash:
            found = Media(image.sha256, image.media_type, b"") if gallery is None else await gallery.media_of(image)
            by_hash[image.sha256] = found
    return msgspec.structs.replace(prompt, media=tuple(by_hash[image.sha256] for image in images))


class Shown(msgspec.Struct, frozen=True):
    """The images of a planned prompt, in the order of their placeholders."""

    held: tuple[Picture, ...] = ()
    added: tuple[ShownImage, ...] = ()


def shown_in(prompt: Prompt, forest: Forest) -> Shown:
    """Which images stand among the held ids and which among the added ones.

    Raises: CallerError if placeholders and images do not pair up, so that images would move into each other's places.
    """
    if not prompt.media:
        return Shown()
    held = () if prompt.parent is None else pictures(forest.node(prompt.parent), len(prompt.held_T))
    new = prompt.media[len(held) :]
    places = _places(prompt.added_A, prompt.placeholder_id)
    in_held = len(_places(prompt.held_T, prompt.placeholder_id))
    if len(places) != len(new) or in_held != len(held):
        raise CallerError(
            f"The prompt would have {in_held + len(places)} image placeholders for {len(prompt.media)} images",
            "Leave the images out, or begin a conversation without the answer that the model wrote a placeholder into",
            code="images_not_supported",
            param="messages",
        )
    added = (
        ShownImage(at, each.sha256, each.media_type, len(each.data), each.width, each.height, each.address_sha256)
        for at, each in zip(places, new, strict=True)
    )
    return Shown(held, tuple(added))


async def keep_added(gallery: Gallery | None, prompt: Prompt, shown: Shown) -> None:
    """Make the bytes of the images that a prompt adds durable; those that it holds have been since they were added.

    Raises: StoreError if they cannot be written.
    """
    if gallery is not None and shown.added:
        await gallery.keep(prompt.media[len(shown.held) :])


def _places(ids: IdRun, placeholder_id: int | None) -> list[int]:
    return [] if placeholder_id is None else ids.places(placeholder_id)


def expanded_length(prompt: Prompt, shown: Shown, forest: Forest) -> int:
    """How many ids the engine runs for a prompt, as far as runs of its images are known; others count as one."""
    if not prompt.media:
        return len(prompt)
    before = run_lengths(forest)
    lengths = [1 if each.run is None else each.run.length for each in shown.held]
    lengths += [before.get(each.sha256, 1) for each in shown.added]
    return len(prompt) + sum(lengths) - len(lengths)
