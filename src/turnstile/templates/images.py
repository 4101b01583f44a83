"""Images in a prompt: which token stands for one, whose messages may carry one, and whether their number is right.

An engine puts the n-th image in the place of the n-th placeholder. One too many or too few, and images move into each
other's places without a word: every prompt with images is counted before it leaves.
Source: docs/decisions/0012.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from turnstile.conversation import Image, Message, Role, Text, ToolCall, is_plain
from turnstile.errors import CallerError
from turnstile.generation import HeldAnswer
from turnstile.reasons import RerenderReason
from turnstile.templates.bodies import Body
from turnstile.templates.render import ImageType, MessageForm
from turnstile.templates.sentinel import Anchored
from turnstile.templates.served import ImageFacts, Refusal, Served
from turnstile.templates.tokenizer import Tokenizer
from turnstile.tokens import IdRun

ShowText: TypeAlias = Callable[[tuple[Message, ...], MessageForm], str]
"""Renders messages with the probe's tool; empty if the template raises."""

_FRONT, _BACK = "zqfront", "zqback"
_IMAGE = Image("00" * 32, "image/png")
_PARTS = (Text(_FRONT), _IMAGE, Text(_BACK))
_USER = Message(role=Role.USER, parts=(Text("zquser"),))
_CALLING = Message(role=Role.ASSISTANT, calls=(ToolCall("zqcallid1", "zqtool", '{"zqarg":"zq"}'),))
_CARRIERS = {
    Role.USER: (Message(role=Role.USER, parts=_PARTS),),
    Role.TOOL: (_USER, _CALLING, Message(role=Role.TOOL, parts=_PARTS, call_id="zqcallid1")),
    Role.SYSTEM: (Message(role=Role.SYSTEM, parts=_PARTS), _USER),
    Role.ASSISTANT: (_USER, Message(role=Role.ASSISTANT, parts=_PARTS), _USER),
}
"""A conversation for each role in which it shows an image."""
_FRAME_WORDS = ("start", "begin", "end", "content")
"""In names of tokens around a placeholder, such as `<|vision_start|>`."""


def probe_images(tokenizer: Tokenizer, form: MessageForm, show: ShowText) -> tuple[ImageType, ImageFacts | None]:
    """How a template takes images, and as what it prints one; None if it takes none.

    Args:
        tokenizer: of the model. A placeholder that is no token of its own is none: no engine would find it.
        form: how the template wants the rest of a message.
        show: renders with the template.
    """
    for image_type in ImageType:
        shaped = msgspec.structs.replace(form, image_type=image_type)
        _, has_front, behind = show(_CARRIERS[Role.USER], shaped).partition(_FRONT)
        between, has_back, _ = behind.partition(_BACK)
        found = _placeholder(tokenizer, between) if has_front and has_back else None
        if found is not None:
            roles = frozenset(role for role in Role if _carries(tokenizer, found[1], show, shaped, role))
            return image_type, ImageFacts(*found, roles)
    return form.image_type, None


def _placeholder(tokenizer: Tokenizer, between: str) -> tuple[str, int] | None:
    """The added token that stands for an image, not those that frame it."""
    if "'type'" in between or '"type"' in between:
        # Printed as Python or JSON would print the part.
        return None
    ids = frozenset(tokenizer.encode(between))
    found = [(token.text, token.id) for token in tokenizer.added if token.id in ids and token.text.strip()]
    inner = [each for each in found if not any(word in each[0].lower() for word in _FRAME_WORDS)]
    return next(iter(inner or found), None)


def _carries(tokenizer: Tokenizer, placeholder_id: int, show: ShowText, form: MessageForm, role: Role) -> bool:
    text = show(_CARRIERS[role], form)
    return bool(text) and tokenizer.encode(text).tolist().count(placeholder_id) == 1


def with_placeholders(served: Served, new: Anchored, bodies: tuple[Body, ...]) -> tuple[Body, ...]:
    """The places of texts, and beside them those of images: an image is as much said by its message as a text."""
    facts = served.facts.images
    if facts is None:
        return bodies
    shown = (Body("", *at) for token, at in zip(new.ids_A, new.offsets_A, strict=True) if token == facts.placeholder_id)
    outside = (each for each in shown if not any(body.start <= each.start < body.end for body in bodies))
    return tuple(sorted((*bodies, *outside), key=lambda body: body.start))


def image_count(messages: Iterable[Message]) -> int:
    """How many images messages show; one that is shown twice counts twice."""
    return sum(len(message.images) for message in messages if not is_plain(message))


class Added(Protocol):
    """Ids behind the first `kept_T` held ones. Shapes: added_A [A]."""

    @property
    def kept_T(self) -> int:
        """How many held ids stay."""
        ...

    @property
    def added_A(self) -> IdRun:
        """What is new."""
        ...


AddedT = TypeVar("AddedT", bound=Added)


def counted(served: Served, held: HeldAnswer, built: AddedT | Refusal, new_M: Sequence[Message]) -> AddedT | Refusal:
    """A bridge, unless it or what it is put behind has not one placeholder for each image."""
    wrong = "" if isinstance(built, Refusal) else miscount(served, held, built, new_M)
    return Refusal(RerenderReason.MEDIA_CHANGED, wrong) if wrong else built


def miscount(served: Served, held: HeldAnswer | None, built: Added, new_M: Sequence[Message]) -> str:
    """What is wrong with the placeholders of held ids and what is put behind them, as a sentence; empty if nothing.

    A conversation without images is not counted.
    """
    facts = served.facts.images
    if facts is None:
        return ""
    new = image_count(new_M)
    past = 0 if held is None else held.past.images
    if not (new or past):
        return ""
    in_new = _placeholders(facts, built.added_A)
    if in_new != new:
        return f"what is new would have {in_new} image placeholders for {new} images"
    in_past = 0 if held is None else _placeholders(facts, held.held_T.slice(0, built.kept_T))
    return "" if in_past == past else f"what is held has {in_past} image placeholders for {past} images"


def refuse_unprinted(served: Served, held: HeldAnswer | None, new_M: tuple[Message, ...]) -> None:
    """Refuse images for which the template has no place.

    Raises: CallerError `images_not_supported` naming the first message whose image the template does not print.
    """
    roles = frozenset[Role]() if held is None else held.past.image_roles
    if roles <= _printed_roles(served) and first_unprinted(served, new_M) is None:
        return
    messages = new_M if held is None else (*held.history_M, held.message, *new_M)
    facts, at = served.facts.images, first_unprinted(served, messages)
    if at is not None:
        where = "" if facts is None else f" in {messages[at].role} messages"
        raise CallerError(
            f"`messages[{at}]` holds an image, but the served chat template prints none{where}",
            "Send text only" if facts is None else "Send the image in a user message",
            code="images_not_supported",
            param=f"messages[{at}]",
        )


def first_unprinted(served: Served, messages: Sequence[Message]) -> int | None:
    """The index of the first message with an image that the template does not print; None if there is none."""
    roles = _printed_roles(served)
    shown = (at for at, message in enumerate(messages) if not is_plain(message) and message.images)
    return next((at for at in shown if messages[at].role not in roles), None)


def _printed_roles(served: Served) -> frozenset[Role]:
    return frozenset() if served.facts.images is None else served.facts.images.roles


def refuse_miscounted(served: Served, messages: Sequence[Message], ids: IdRun) -> None:
    """Refuse a whole prompt in which images would end up in wrong places.

    Raises: CallerError naming the message whose text has a placeholder's, where one has.
    """
    facts, images = served.facts.images, image_count(messages)
    if facts is None or not images or (found := _placeholders(facts, ids)) == images:
        return
    at = next((at for at, message in enumerate(messages) if _says(message, facts.placeholder)), None)
    if at is None:
        raise CallerError(
            f"The prompt would have {found} image placeholders for {images} images",
            "Send images one to a message, in user messages",
            code="images_not_supported",
            param="messages",
        )
    raise CallerError(
        f"`messages[{at}]` has the text {facts.placeholder!r}, in the place of which the model would be shown an image",
        "Take that text out of the conversation, or leave out all images",
        code="invalid_value",
        param=f"messages[{at}]",
    )


def _says(message: Message, text: str) -> bool:
    arguments = (call.arguments for call in message.calls)
    return any(text in said for said in itertools.chain((message.text, message.reasoning), arguments))


def _placeholders(facts: ImageFacts, ids: IdRun) -> int:
    return len(ids.places(facts.placeholder_id))
