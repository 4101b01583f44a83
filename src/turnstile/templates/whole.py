"""A whole conversation as ids: the first prompt of a tree, and every prompt for which no bridge exists."""

from __future__ import annotations

from bisect import bisect_left
from datetime import datetime

import msgspec

from turnstile.conversation import Call, Ending, Message, Role, Text
from turnstile.errors import CallerError
from turnstile.templates.render import GenerationPrompt, TemplateFailed
from turnstile.templates.sentinel import left_open, markers_for, split_once, texts_of
from turnstile.templates.served import Refusal, Scene, Served, render
from turnstile.tokens import IdRun, Segment, SegmentKind, tile

_PLAIN = (Message(role=Role.USER, parts=(Text("Hello"),)),)
"""What every template can render."""


class Whole(msgspec.Struct, frozen=True):
    """A rendered conversation. Shapes: ids_A [A]; segments tile [0, A)."""

    ids_A: IdRun
    segments: tuple[Segment, ...]
    """Prompt, and scaffold for the header of the message that the model is to write."""
    text: str


def whole(served: Served, messages: tuple[Message, ...], call: Call, now: datetime) -> Whole:
    """Render and encode a conversation from its first message on.

    Raises: CallerError `render_failed`, naming the message at fault where it can be told, if the template raises;
        CallerError if tools or template arguments are no JSON objects.
    """
    scene = Scene.of(call, messages, now)
    try:
        text, opening = _rendered(served, scene, messages, call.ending)
    except TemplateFailed as failure:
        raise _render_failed(served, scene, messages, failure) from failure
    ids, opened = _encoded(served, text, opening)
    pieces = [(len(ids) - opened, SegmentKind.PROMPT), (opened, SegmentKind.SCAFFOLD)]
    return Whole(ids, tile(pieces), text)


def _rendered(served: Served, scene: Scene, messages: tuple[Message, ...], ending: Ending) -> tuple[str, int]:
    """The text, and the character at which the message that the model is to write begins. Raises: TemplateFailed."""
    if ending is Ending.ANSWER:
        text = render(served, scene, messages, GenerationPrompt.ADD)
        return text, _shared(text, _or_nothing(served, scene, messages))
    markers = markers_for((*texts_of(messages), *scene.tools, scene.kwargs))
    open_M = (*messages[:-1], left_open(messages[-1], markers.end))
    parts = split_once(
        render(served, scene, open_M, GenerationPrompt.OMIT), markers.end, "the end of the message to be continued"
    )
    if isinstance(parts, Refusal):
        raise TemplateFailed(
            f"The last message cannot be continued: {parts.detail}",
            "Ask for a new answer, or end the conversation with a user's message",
            param=f"messages[{len(messages) - 1}]",
        )
    return parts[0], _shared(parts[0], _or_nothing(served, scene, messages[:-1]))


def _or_nothing(served: Served, scene: Scene, messages: tuple[Message, ...]) -> str | None:
    try:
        return render(served, scene, messages, GenerationPrompt.OMIT)
    except TemplateFailed:
        return None


def _shared(text: str, shorter: str | None) -> int:
    """Length of the common prefix; the whole text if there is nothing to compare it with."""
    if shorter is None or text.startswith(shorter):
        return len(text) if shorter is None else len(shorter)
    return next((at for at, (a, b) in enumerate(zip(text, shorter, strict=False)) if a != b), len(text))


def _encoded(served: Served, text: str, opening: int) -> tuple[IdRun, int]:
    """The ids, and how many of them belong to what stands from the character `opening` on."""
    ids = served.tokenizer.encode(text)
    last = served.tokenizer.encode(text[opening:])
    if ids.slice(len(ids) - len(last)) == last:
        return ids, len(last)
    # The character is inside a token (two templates' endings that begin alike): look where each token stands.
    offsets = served.tokenizer.encode_with_offsets(text).offsets
    return ids, sum(1 for _, end in offsets if end > opening)


def _render_failed(served: Served, scene: Scene, messages: tuple[Message, ...], failure: TemplateFailed) -> CallerError:
    if (tool := _tool_at_fault(served, scene, failure)) is not None:
        return CallerError(
            f"render_failed: {failure.problem} (at `tools[{tool}]`)",
            "Declare that tool with all that the chat template reads of one, or leave it out; the rollout stays usable",
            code="render_failed",
            param=f"tools[{tool}]",
        )
    at = _message_at_fault(served, scene, messages, failure)
    malformed = _malformed_call(messages[at]) if at is not None else ""
    where = failure.param if at is None else f"messages[{at}]{malformed}"
    what = ": arguments that are no JSON object" if malformed else ""
    return CallerError(
        f"render_failed{what}: {failure.problem} (at `{where}`)",
        "Replace or leave out that message; the rollout stays usable",
        code="render_failed",
        param=where,
    )


def _message_at_fault(
    served: Served, scene: Scene, messages: tuple[Message, ...], failure: TemplateFailed
) -> int | None:
    """The last message of the shortest beginning that fails in the same words; None if none does."""
    counts = range(1, len(messages) + 1)
    shortest = bisect_left(counts, x=True, key=lambda count: _fails_alike(served, scene, messages[:count], failure))
    return shortest if shortest < len(messages) else None


def _tool_at_fault(served: Served, scene: Scene, failure: TemplateFailed) -> int | None:
    """The last tool of the fewest with which any conversation fails in the same words; None if it is no tool."""

    def fails(count: int) -> bool:
        return _fails_alike(served, msgspec.structs.replace(scene, tools=scene.tools[:count]), _PLAIN, failure)

    if not fails(len(scene.tools)) or fails(0):
        return None
    return bisect_left(range(1, len(scene.tools)), x=True, key=fails)


def _fails_alike(served: Served, scene: Scene, messages: tuple[Message, ...], failure: TemplateFailed) -> bool:
    try:
        render(served, scene, messages, GenerationPrompt.ADD)
    except TemplateFailed as other:
        return other.problem == failure.problem
    return False


def _malformed_call(message: Message) -> str:
    for at, call in enumerate(message.calls):
        try:
            msgspec.json.decode(call.arguments or "{}", type=dict[str, object])
        except msgspec.DecodeError:
            return f".tool_calls[{at}].function.arguments"
    return ""
