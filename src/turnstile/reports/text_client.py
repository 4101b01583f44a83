"""What a client that re-sends text would have sent for a call, and what an engine's chat route would make of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from turnstile.conversation import Call, Ending, JsonText, Message, ToolSpec
from turnstile.history.forest import Forest, Node
from turnstile.journal import CallStarted
from turnstile.templates.render import GenerationPrompt
from turnstile.templates.served import Scene, Served, leading_system, render
from turnstile.templates.whole import whole


class Conversation(msgspec.Struct, frozen=True):
    """Everything that the text of a prompt or sequence depends on, beside the model."""

    messages: tuple[Message, ...]
    tools: tuple[JsonText, ...]
    kwargs: JsonText
    now: datetime
    """The present that the template was shown."""
    ending: Ending = Ending.ANSWER


def request_messages(forest: Forest, started: CallStarted) -> tuple[Message, ...]:
    """A request's messages, each held answer in the spelling in which the client first sent it back.

    Calls, results and reasoning of one answer stand in one message also where the client had cut it up.
    """
    if started.parent is None:
        return started.new_M
    return (*_path_messages(forest.node(started.parent), started.echoed), *started.new_M)


def _path_messages(node: Node, echoed: Message | None) -> tuple[Message, ...]:
    pieces: list[tuple[Message, ...]] = []
    at: Node | None = node
    while at is not None:
        pieces.append((echoed or at.message,))
        # A continued answer is one message, which stands where the last of its completions stands.
        while at.continues_parent and at.parent is not None:
            at = at.parent
        pieces.append(at.own_M)
        echoed = at.started.echoed
        at = at.parent
    return tuple(message for piece in reversed(pieces) for message in piece)


def conversation_of(forest: Forest, started: CallStarted) -> Conversation:
    """What the request of a call said."""
    assert forest.opened is not None
    head = forest.heads[started.head]
    return Conversation(
        messages=request_messages(forest, started),
        tools=head.tools,
        kwargs=head.template_kwargs,
        now=forest.opened.opened_at,
        ending=started.ending,
    )


def prompt_text(served: Served, said: Conversation) -> str:
    """The text of the prompt for a request; a message that is to be continued is left open.

    Raises: CallerError if the template refuses it.
    """
    if said.ending is Ending.CONTINUE:
        tools = tuple(ToolSpec("", declaration) for declaration in said.tools)
        call = Call("", "", said.messages, tools, template_kwargs=said.kwargs, ending=Ending.CONTINUE)
        return whole(served, said.messages, call, said.now).text
    return render(served, _scene(said), said.messages, GenerationPrompt.ADD)


def sequence_text(served: Served, said: Conversation) -> str:
    """The text of a conversation that ends with an answer, as a trainer that starts from text would have it.

    Raises: CallerError if the template refuses it.
    """
    return render(served, _scene(said), said.messages, GenerationPrompt.OMIT)


def _scene(said: Conversation) -> Scene:
    return Scene(leading_system(said.messages), said.tools, said.kwargs, said.now)


def sampled_spans(path: tuple[Node, ...]) -> tuple[tuple[int, int], ...]:
    """[start, end) of each answer's ids on a path; a stop id that was put aside is not on it."""
    return tuple(_spans(path))


def _spans(path: tuple[Node, ...]) -> Iterator[tuple[int, int]]:
    for at, node in enumerate(path):
        kept = path[at + 1].started.held_length if at + 1 < len(path) else node.length
        start = node.length - len(node.choice.ids_S)
        yield start, max(start, min(node.length, kept))
