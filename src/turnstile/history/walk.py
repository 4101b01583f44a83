"""A walk along a request's messages through the index, as far as they are held.

It turns what the client sent into the messages of held paths: one answer that came back as several messages is
one again (case C3), and a message that continues another is joined with it. What it decides rests on the index
and on `equality` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from turnstile.conversation import Message, Role, ToolCall
from turnstile.history.digest import Key, extended, head_key
from turnstile.history.echoes import Repeat
from turnstile.history.equality import (
    NO_POSITION,
    Different,
    Pairing,
    Same,
    ToolDefaults,
    compare_answers,
    compare_arguments,
    continued,
)
from turnstile.history.forest import Forest
from turnstile.history.index import Prefix
from turnstile.history.node import Node

_LATEST_TRIED = 8
"""How many of the latest completions a request is first taken to build on."""
_SAMPLES_TRIED = 64
"""How many answers of one prompt a changed answer is compared with, latest first: bounds a best-of-1000."""


@dataclass(slots=True)
class Walk:
    """A request in the messages of held paths."""

    keys: list[Key]
    """The head's key, then one behind each leading message that is on some held path."""
    spoken_M: list[Message] = field(default_factory=list[Message])
    """The request's messages as a held path would have them."""
    positions_M: list[int] = field(default_factory=list[int])
    """For each of them: which call of the preceding answer it answers, or -1."""
    origins_M: list[int] = field(default_factory=list[int])
    """For each of them: its index in the client's list."""
    split_M: set[int] = field(default_factory=set[int])
    """Which of them came back as several messages."""
    verdicts_M: dict[int, tuple[Node, Same]] = field(default_factory=dict[int, tuple[Node, Same]])
    """Answers that were compared on the way, by index."""
    repeat: Repeat | None = None
    """A path of which the request was known to be a repeat; no keys are listed for the messages along it."""

    @property
    def held_length_M(self) -> int:
        """How many leading messages are on some held path, reasoning left out of account."""
        return len(self.keys) - 1

    @property
    def is_held(self) -> bool:
        """Whether all messages are."""
        return self.held_length_M == len(self.spoken_M)

    def verdict(self, at: int, node: Node | None) -> Same | None:
        """That a completion's answer is the message at an index, if that was found on the way."""
        found = self.verdicts_M.get(at)
        return found[1] if found is not None and found[0] is node else None


class _Gathered(msgspec.Struct, frozen=True):
    """One answer, put together from the messages that it was split into, and the results among them."""

    answer: Message
    results: tuple[tuple[int, Message], ...]
    """Index from the run's start, and message."""
    length: int
    """How many messages of the request it took."""


def walk(forest: Forest, start: Key, messages: Sequence[Message], defaults: ToolDefaults) -> Walk:
    """Walk as far as the messages are held, and list the rest as it came.

    Args:
        forest: what is held.
        start: the head's key.
        messages: the request's.
        defaults: of the request's tools.
    """
    repeat = forest.echoes.repeated(_likely(forest, start, messages), messages)
    begun = Walk([start]) if repeat is None else _resumed(start, messages, repeat)
    walker = _Walker(forest, begun, messages, defaults)
    at = len(begun.spoken_M)
    while at < len(messages):
        at = walker.step(at)
    return walker.walk


def _likely(forest: Forest, start: Key, messages: Sequence[Message]) -> Iterable[Node]:
    """Completions that the request may build on: by the last ids that it brings back, then the latest.

    A good guess saves work and changes nothing: what it leads to is compared all the same.
    """
    last = next((message for message in reversed(messages) if message.calls), None)
    named = () if last is None else forest.index.minted(last.calls[0].call_id)
    likely = (*named, *forest.latest(_LATEST_TRIED))
    return (node for node in likely if head_key(node.started.head) == start and not node.is_incomplete)


def _resumed(start: Key, messages: Sequence[Message], repeat: Repeat) -> Walk:
    length_M = repeat.node.length_M
    return Walk(
        keys=[start, *[b""] * (length_M - 1), repeat.node.key],
        spoken_M=list(messages[:length_M]),
        positions_M=[NO_POSITION] * length_M,
        origins_M=list(range(length_M)),
        repeat=repeat,
    )


class _Walker:
    def __init__(self, forest: Forest, begun: Walk, messages: Sequence[Message], defaults: ToolDefaults) -> None:
        self.walk = begun
        self._index = forest.index
        self._echoes = forest.echoes
        self._messages = messages
        self._defaults = defaults
        self._pairing = Pairing(begun.spoken_M[-1].calls if begun.spoken_M else ())

    def step(self, at: int) -> int:
        """Take the message at an index, and those that belong to it; the index of the next one."""
        message = self._messages[at]
        if message.role is Role.ASSISTANT and self.walk.is_held:
            return self._answer(at)
        self._other(at, message)
        return at + 1

    def _other(self, at: int, message: Message) -> None:
        position = self._pairing.place(message)
        if self.walk.is_held:
            key = extended(self.walk.keys[-1], message, position)
            if self._index.get(key) is not None:
                self.walk.keys.append(key)
        self._list(at, message, position)

    def _answer(self, at: int) -> int:
        message = self._messages[at]
        here = self.walk.keys[-1]
        named = [node for call in message.calls for node in self._index.minted(call.call_id) if node.prompt_key == here]
        if self._one_of(at, message, named):
            return at + 1
        key = extended(here, message)
        known = self._index.get(key)
        # A sibling answer may equal the first part of a split one: the minted ids tell them apart.
        if known is not None and not (named and known.answers):
            self._hold(at, message, key)
            return at + 1
        prefix = self._index.get(here)
        samples = [] if prefix is None else prefix.samples[-_SAMPLES_TRIED:][::-1]
        length = self._split(at, [*named, *samples])
        if length:
            return at + length
        if known is not None:
            self._hold(at, message, key)
        elif not self._one_of(at, message, samples) and not self._continuation(message, prefix):
            self._list(at, message, self._pairing.place(message))
        return at + 1

    def _one_of(self, at: int, message: Message, nodes: Sequence[Node]) -> bool:
        """Whether the message is one of some answers to the same prompt, in any form that is forgiven."""
        for node in nodes:
            verdict = self._echoes.verdict(node, message) or compare_answers(node.message, message, self._defaults)
            if isinstance(verdict, Same):
                self.walk.verdicts_M[len(self.walk.spoken_M)] = (node, verdict)
                self._hold(at, message, node.key)
                return True
            if node.prefill is not None and self._is_continuation(node, message):
                self._hold(at, continued(node.prefill, message), node.key)
                return True
        return False

    def _continuation(self, message: Message, prefix: Prefix | None) -> bool:
        """Whether the message goes on writing the one before it, as a held answer did."""
        for node in () if prefix is None else reversed(prefix.continuations):
            if node.prefill is not None and self._is_continuation(node, message):
                walk = self.walk
                begun = walk.spoken_M.pop()
                walk.keys.pop()
                walk.positions_M.pop()
                walk.verdicts_M.pop(len(walk.spoken_M), None)
                self._hold(walk.origins_M.pop(), continued(begun, message), node.key)
                return True
        return False

    def _is_continuation(self, node: Node, message: Message) -> bool:
        return isinstance(compare_answers(node.choice.message, message, self._defaults), Same)

    def _split(self, at: int, nodes: Sequence[Node]) -> int:
        """Take one answer that came back as several messages; how many they are, 0 if it is none."""
        for node in nodes:
            if len(node.message.calls) <= len(self._messages[at].calls):
                continue
            gathered = _gather(node.message, self._messages[at:], self._defaults)
            if gathered is not None:
                self.walk.split_M.add(len(self.walk.spoken_M))
                self._hold(at, gathered.answer, node.key)
                for offset, result in gathered.results:
                    self._other(at + offset, result)
                return gathered.length
        return 0

    def _hold(self, at: int, answer: Message, key: Key) -> None:
        self.walk.keys.append(key)
        self._list(at, answer, self._pairing.place(answer))

    def _list(self, at: int, message: Message, position: int) -> None:
        self.walk.spoken_M.append(message)
        self.walk.positions_M.append(position)
        self.walk.origins_M.append(at)


class _Part(msgspec.Struct, frozen=True):
    """A call of a held answer that one of the messages brought back."""

    position: int
    call: ToolCall


def _gather(held: Message, run: Sequence[Message], defaults: ToolDefaults) -> _Gathered | None:
    """Put an answer together again from assistant messages with results among them.

    Each of the messages must bring calls of the answer that no other brought, and its text and reasoning or none.
    """
    parts: dict[int, ToolCall] = {}
    results: list[tuple[int, Message]] = []
    said: list[Message] = []
    for offset, message in enumerate(run):
        if message.role is Role.TOOL:
            results.append((offset, message))
            continue
        found = _parts(held, message, parts, defaults)
        if not found:
            return None
        parts |= {part.position: part.call for part in found}
        said.append(message)
        if len(parts) == len(held.calls):
            return _Gathered(_joined(held, said, parts), tuple(results), offset + 1)
    return None


def _parts(held: Message, message: Message, taken: dict[int, ToolCall], defaults: ToolDefaults) -> list[_Part]:
    """The calls of the answer that a message brings back; none if it is no part of the answer."""
    said_alone = msgspec.structs.replace(message, calls=held.calls)
    is_silent = not message.text.strip() and not message.images
    held_words = msgspec.structs.replace(held, parts=()) if is_silent else held
    if message.role is not Role.ASSISTANT or isinstance(compare_answers(held_words, said_alone, defaults), Different):
        return []
    found: list[_Part] = []
    for call in message.calls:
        gone = {*taken, *(part.position for part in found)}
        position = _position(held.calls, call, gone, defaults)
        if position == NO_POSITION:
            return []
        found.append(_Part(position, call))
    return found


def _position(calls: Sequence[ToolCall], sent: ToolCall, gone: set[int], defaults: ToolDefaults) -> int:
    """Which of the calls came back: the one of that id, else the first equal one."""
    free = [at for at in range(len(calls)) if at not in gone]
    free.sort(key=lambda at: calls[at].call_id != sent.call_id)
    for at in free:
        if calls[at].name == sent.name and isinstance(compare_arguments(calls[at], sent, defaults), Same):
            return at
    return NO_POSITION


def _joined(held: Message, said: Sequence[Message], parts: dict[int, ToolCall]) -> Message:
    """The answer as the client would have sent it in one piece."""
    speaking = next((message for message in said if message.text.strip() or message.images), said[0])
    reasoning = next((message.reasoning for message in said if message.reasoning), "")
    calls = tuple(parts[at] for at in range(len(held.calls)))
    return Message(Role.ASSISTANT, parts=speaking.parts, reasoning=reasoning, calls=calls)
