"""Which parts of an unfinished answer were whole, and with which id each of them ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from turnstile.conversation import Message, ReplyDelta, Role, Text, ToolCall, ToolCallDelta
from turnstile.generation import Delta, FinishedItem
from turnstile.parsing.parser import Parser, ParserSetup
from turnstile.tokens import IdRun

_CHUNK = 32
"""So many ids are read at once where no item ends: reading one by one costs several times as much."""
_BEHIND = 2
"""In how many chunks from its last piece on the end of an item is looked for."""


class _Stretch(msgspec.Struct):
    """A run of pieces of one kind; a call is one of its own."""

    pieces: list[Message]
    told: int
    """The chunk in which its last piece came."""
    end_S: int = 0
    """The first count of ids behind which the answer could be cut with nothing but this and what is before it said."""

    @property
    def said(self) -> Message:
        text = "".join(piece.text for piece in self.pieces)
        return Message(
            Role.ASSISTANT,
            parts=(Text(text),) if text else (),
            reasoning="".join(piece.reasoning for piece in self.pieces),
            calls=self.pieces[0].calls,
        )


def finished_items(setup: ParserSetup, ids_S: IdRun, call_ids: Sequence[str]) -> tuple[FinishedItem, ...]:
    """The items that clients were told in full before an answer broke off.

    Reasoning and text are finished when something else follows them, a call when it was handed out: that is when
    the dialects with items end theirs. An item ends with the first id behind which the sampled ids, read as an answer
    that was cut there, say all items up to this one and nothing else. So no item is ever cut, and no marker either;
    an item whose last id reaches into the next one has no end. Whitespace in front of a marker belongs to no item, so
    an id that has a line break behind a word may end a text.

    Args:
        setup: what the answer was read with.
        ids_S: all that was sampled of it.
        call_ids: the ids of the calls that were handed out, in order: the same calls keep them.

    Nothing where the engine's parser read it: its words cannot be asked for a second time.
    """
    if setup.format.is_read_by_engine:
        return ()
    coarse = _Reader(setup, call_ids)
    for chunk, start in enumerate(range(0, len(ids_S), _CHUNK)):
        coarse.read(ids_S.slice(start, start + _CHUNK), chunk)
    finished = coarse.finished
    if not finished:
        return ()
    near = {chunk for stretch in finished for chunk in range(stretch.told, stretch.told + _BEHIND)}
    fine = _Reader(setup, call_ids)
    for chunk, start in enumerate(range(0, len(ids_S), _CHUNK)):
        step = 1 if chunk in near else _CHUNK
        for at in range(start, min(start + _CHUNK, len(ids_S)), step):
            fine.read(ids_S.slice(at, min(at + step, start + _CHUNK)), chunk)
    return tuple(FinishedItem(stretch.said, stretch.end_S) for stretch in fine.finished)


class _Reader:
    """Reads an answer once more, and notes its stretches."""

    def __init__(self, setup: ParserSetup, call_ids: Sequence[str]) -> None:
        minted = iter(call_ids)
        self._parser = Parser(msgspec.structs.replace(setup, mint=lambda: next(minted, "")))
        self._count_S = 0
        self._stretches: list[_Stretch] = []

    @property
    def finished(self) -> list[_Stretch]:
        """All but one that may go on."""
        found = self._stretches
        return found if found and found[-1].pieces[0].calls else found[:-1]

    def read(self, ids: IdRun, chunk: int) -> None:
        self._count_S += len(ids)
        for delta in self._parser.feed(Delta(ids)):
            for piece in _pieces(delta):
                self._add(piece, chunk)
        last = self._stretches[-1] if self._stretches else None
        if last is not None and not last.end_S and self._parser.is_settled:
            last.end_S = self._count_S

    def _add(self, piece: Message, chunk: int) -> None:
        last = self._stretches[-1] if self._stretches else None
        if last is None or piece.calls or last.pieces[0].calls or _is_thought(piece) != _is_thought(last.pieces[0]):
            self._stretches.append(_Stretch([piece], chunk))
        else:
            last.pieces.append(piece)
            last.told, last.end_S = chunk, 0


def _is_thought(piece: Message) -> bool:
    return bool(piece.reasoning)


def _pieces(delta: ReplyDelta) -> Iterator[Message]:
    if delta.reasoning:
        yield Message(Role.ASSISTANT, reasoning=delta.reasoning)
    if delta.content:
        yield Message(Role.ASSISTANT, (Text(delta.content),))
    for call in _calls(delta.calls):
        yield Message(Role.ASSISTANT, calls=(call,))


def _calls(deltas: Sequence[ToolCallDelta]) -> Iterator[ToolCall]:
    for index in dict.fromkeys(delta.index for delta in deltas):
        own = [delta for delta in deltas if delta.index == index]
        yield ToolCall(own[0].call_id, own[0].name, "".join(delta.arguments for delta in own))
