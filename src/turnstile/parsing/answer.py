"""An answer's text, as it comes, told apart into reasoning, content and tool calls.

What is handed out never depends on how the text was cut into pieces: nothing leaves before it is certain whatever
follows. So markers that may be forming are held back, and so is whitespace that a marker would swallow, and a tool
call as a whole: only its end tells whether it is one, and a call once handed out cannot become text again. The price
is that a client sees a call's arguments in one piece, when they are complete.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import final

import msgspec

from turnstile.conversation import ToolSpec
from turnstile.generation import Cut, Note
from turnstile.parsing.formats import ReasoningMarkers
from turnstile.parsing.markers import WHITESPACE, Markers, without_trailing_space
from turnstile.parsing.toolcalls.base import NotACall, Place, RawCall, Section, ToolCallFormat, Unfinished
from turnstile.reasons import NoteCode


class Grammar(msgspec.Struct, frozen=True):
    """What may be in an answer."""

    reasoning: ReasoningMarkers | None
    calls: ToolCallFormat | None
    """None: tool markers are text like any other."""
    tools: tuple[ToolSpec, ...] = ()

    def openers(self, *places: Place) -> tuple[str, ...]:
        """The markers that open a call at any of these places."""
        openers = self.calls.syntax.openers if self.calls else ()
        return tuple(opener.marker for opener in openers if opener.place in places)


class Pieces(msgspec.Struct, frozen=True):
    """What an answer gained: reasoning, then content, then calls."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[RawCall, ...] = ()


class Ending(enum.StrEnum):
    """Why no more text comes."""

    STOPPED = "stopped"
    """The model ended its answer, or a stop string did: what it left open, it left out."""
    CUT = "cut"
    """The model would have gone on: what is open is unfinished."""


class _Mode(enum.Enum):
    ANSWER = enum.auto()
    REASONING = enum.auto()
    CALL = enum.auto()
    """Behind an opener, until the format says what it is."""
    DOUBT = enum.auto()
    """Behind an opener inside the reasoning: a call if the reasoning never closes, a thought if it does."""


@final
class _Outbox:
    """Collects what was found, as few pieces as its order allows."""

    def __init__(self) -> None:
        self._closed: list[Pieces] = []
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._calls: list[RawCall] = []

    def reasoning(self, text: str) -> None:
        if text:
            if self._content or self._calls:
                self._close()
            self._reasoning.append(text)

    def content(self, text: str) -> None:
        if text:
            if self._calls:
                self._close()
            self._content.append(text)

    def call(self, calls: Sequence[RawCall]) -> None:
        self._calls.extend(calls)

    def pieces(self) -> tuple[Pieces, ...]:
        self._close()
        return tuple(self._closed)

    def _close(self) -> None:
        if self._reasoning or self._content or self._calls:
            self._closed.append(Pieces("".join(self._reasoning), "".join(self._content), tuple(self._calls)))
        self._reasoning, self._content, self._calls = [], [], []


class _Since(enum.Enum):
    """What the answer's last text was."""

    START = enum.auto()
    REASONING = enum.auto()
    CALL = enum.auto()
    CONTENT = enum.auto()


@final
class AnswerReader:
    """Reads one answer. `feed` and `finish` say what they found through `take`."""

    def __init__(self, grammar: Grammar) -> None:
        """Read an answer from its first character."""
        self._grammar = grammar
        self._mode = _Mode.ANSWER
        self._since = _Since.START
        self._pending = ""
        self._anywhere = Markers(grammar.openers(Place.ANYWHERE))
        closing = (grammar.reasoning.closing,) if grammar.reasoning else ()
        self._in_reasoning = Markers((*closing, *self._anywhere.texts))
        self._thought = False
        self._opened_by_prompt = False
        self._held: list[str] = []
        self._lead: str = ""
        self._until: tuple[str, ...] = ()
        self._tail = ""
        self._hidden = 0
        self._out = _Outbox()
        self.notes: list[Note] = []

    def begin_in_reasoning(self) -> None:
        """The prompt ended with the marker that opens the reasoning."""
        if self._grammar.reasoning:
            self._mode, self._opened_by_prompt = _Mode.REASONING, True

    def begin_behind(self, prefill: str) -> None:
        """The client wrote the answer's beginning: read it, hand none of it out.

        A marker does not reach from the prefill into the continuation. A call does: it is handed out whole, and if
        it is none, only the text behind the prefill is.
        """
        self.feed(prefill)
        self.take()
        self.notes.clear()
        if self._mode in (_Mode.CALL, _Mode.DOUBT):
            self._hidden = len(self._lead) + sum(map(len, self._held))
        elif self._pending.strip(WHITESPACE):
            self._since, self._thought = _Since.CONTENT, True
        self._pending = ""

    def feed(self, text: str) -> None:
        """Read on."""
        self._pending += text
        while self._pending and self._step():
            pass

    def take(self) -> tuple[Pieces, ...]:
        """What was found since the last call, in order: what breaks the order of a piece begins a new one."""
        out, self._out = self._out, _Outbox()
        return out.pieces()

    def finish(self, ending: Ending) -> Cut:
        """No more text comes; returns where the answer ended, as if nothing had ended it."""
        unclosed = self._mode in (_Mode.REASONING, _Mode.DOUBT)
        if unclosed:
            self.notes.append(Note(NoteCode.REASONING_UNCLOSED))
            self._leave_reasoning(ending)
        in_call = self._mode is _Mode.CALL
        while self._mode is _Mode.CALL:
            self._close_call(ending)
        if self._mode is _Mode.ANSWER:
            self._emit_rest()
        if unclosed:
            return Cut.REASONING
        return Cut.CALL if in_call else Cut.CONTENT

    @property
    def is_settled(self) -> bool:
        """Whether an answer that was cut here would say what was found so far and, but for whitespace, nothing else."""
        return self._mode is _Mode.ANSWER and not self._pending.strip(WHITESPACE)

    def _step(self) -> bool:
        """Read the pending text as far as it is certain; whether there may be more to read."""
        match self._mode:
            case _Mode.ANSWER if self._since is _Since.CONTENT:
                return self._read_content()
            case _Mode.ANSWER:
                return self._read_start()
            case _Mode.REASONING:
                return self._read_reasoning()
            case _Mode.CALL:
                return self._read_call()
            case _Mode.DOUBT:
                return self._read_doubt()

    def _start_markers(self) -> tuple[str, ...]:
        """What may stand here instead of content."""
        grammar = self._grammar
        match self._since:
            case _Since.START:
                thinks = (grammar.reasoning.opening,) if grammar.reasoning else ()
                return (*thinks, *grammar.openers(Place.ANYWHERE, Place.FIRST))
            case _Since.REASONING:
                return grammar.openers(Place.ANYWHERE, Place.FIRST)
            case _Since.CALL:
                return grammar.openers(Place.ANYWHERE, Place.FIRST, Place.AFTER_CALL)
            case _Since.CONTENT:
                return self._anywhere.texts

    def _read_start(self) -> bool:
        text = self._pending
        body = text.lstrip(WHITESPACE)
        markers = self._start_markers()
        if not body and (markers or self._since is _Since.REASONING):
            return False
        for marker in markers:
            if body.startswith(marker):
                self._enter(marker, len(text) - len(body))
                return True
        if body and any(marker.startswith(body) for marker in markers):
            return False
        if self._since is _Since.REASONING:
            self._pending = body
        self._since = _Since.CONTENT
        return True

    def _read_content(self) -> bool:
        text = self._pending
        hit = self._anywhere.first_hit(text)
        if hit:
            end = without_trailing_space(text, hit.start)
            self._out.content(text[:end])
            self._pending = text[end:]
            self._enter(hit.marker, hit.start - end)
            return True
        end = len(text)
        if self._anywhere:
            end = without_trailing_space(text, self._anywhere.held_from(text))
        self._out.content(text[:end])
        self._pending = text[end:]
        return False

    def _enter(self, marker: str, at: int) -> None:
        """Go behind a marker that the pending text has at `at`, after whitespace that it swallows."""
        text = self._pending
        if self._grammar.reasoning and marker == self._grammar.reasoning.opening:
            self._mode, self._pending = _Mode.REASONING, text[at + len(marker) :]
            return
        self._mode = _Mode.CALL
        self._lead = "" if self._since is _Since.REASONING else text[:at]
        self._hold_from(text[at:])

    def _hold_from(self, text: str) -> None:
        self._held, self._until, self._tail, self._pending = [], (), "", text

    def _read_reasoning(self) -> bool:
        markers = self._grammar.reasoning
        assert markers
        text = self._pending if self._thought else self._pending.lstrip(WHITESPACE)
        self._pending = text
        if not self._thought and self._opened_by_prompt and text:
            if text.startswith(markers.opening):
                self._pending, self._opened_by_prompt = text[len(markers.opening) :], False
                return True
            if markers.opening.startswith(text):
                return False
        hit = self._in_reasoning.first_hit(text)
        end = hit.start if hit else self._in_reasoning.held_from(text)
        end = without_trailing_space(text, end)
        self._think(text[:end])
        self._pending = text[end:]
        if not hit:
            return False
        if hit.marker == markers.closing:
            self._mode, self._since, self._pending = _Mode.ANSWER, _Since.REASONING, text[hit.end :]
        else:
            self._mode, self._lead = _Mode.DOUBT, text[end : hit.start]
            self._hold_from(text[hit.start :])
        return True

    def _think(self, text: str) -> None:
        self._thought = self._thought or bool(text)
        self._out.reasoning(text)

    def _read_doubt(self) -> bool:
        markers = self._grammar.reasoning
        assert markers
        if not self._hold_pending((markers.closing,)):
            return False
        text = "".join(self._held)
        close = text.index(markers.closing)
        self.notes.append(Note(NoteCode.TOOL_SECTION_WITHOUT_CALL, "inside the reasoning"))
        self._think((self._lead + text[:close]).rstrip(WHITESPACE)[self._hidden :])
        self._mode, self._since, self._pending = _Mode.ANSWER, _Since.REASONING, text[close + len(markers.closing) :]
        self._held, self._hidden = [], 0
        return True

    def _hold_pending(self, until: tuple[str, ...]) -> bool:
        """Hold the pending text too; whether one of the awaited texts has now come."""
        piece, self._pending = self._pending, ""
        self._held.append(piece)
        seen = self._tail + piece
        longest = max(map(len, until), default=1)
        self._tail = seen[max(0, len(seen) - longest + 1) :]
        return not until or any(text in seen for text in until)

    def _read_call(self) -> bool:
        calls = self._grammar.calls
        assert calls
        if not self._hold_pending(self._until):
            return False
        text = "".join(self._held)
        self._held = [text]
        match calls.read(text, self._grammar.tools):
            case Unfinished(until=until):
                longest = max(map(len, until), default=1)
                self._until, self._tail = until, text[max(0, len(text) - longest + 1) :]
                return False
            case Section() | NotACall() as reading:
                self._conclude(text, reading)
                return True

    def _conclude(self, text: str, reading: Section | NotACall) -> None:
        self._mode = _Mode.ANSWER
        match reading:
            case Section(end=end, calls=calls):
                self._out.call(calls)
                self._since = _Since.CALL
            case NotACall(end=end, note=note):
                end = max(end, self._hidden - len(self._lead))
                self._out.content((self._lead + text[:end])[self._hidden :])
                self._since = _Since.CONTENT
                if note:
                    self.notes.append(note)
        self._pending = text[end:]
        self._held, self._lead, self._hidden = [], "", 0

    def _leave_reasoning(self, ending: Ending) -> None:
        """The reasoning was never closed: what may be calls in it is read as if it had been closed before them."""
        if self._mode is _Mode.REASONING:
            self._think(self._pending.rstrip(WHITESPACE))
            self._pending = ""
            return
        held = "".join(self._held)
        if ending is Ending.CUT and not self._has_call(held):
            self._think((self._lead + held).rstrip(WHITESPACE)[self._hidden :])
            self._pending = ""
            self._mode = _Mode.REASONING
            return
        self._hidden = max(0, self._hidden - len(self._lead))
        self._mode, self._since = _Mode.ANSWER, _Since.REASONING
        self._hold_from(held)
        self.feed("")

    def _has_call(self, text: str) -> bool:
        scratch = AnswerReader(msgspec.structs.replace(self._grammar, reasoning=None))
        scratch.feed(text)
        return any(pieces.calls for pieces in scratch.take())

    def _close_call(self, ending: Ending) -> None:
        calls = self._grammar.calls
        assert calls
        text = "".join(self._held)
        match ending:
            case Ending.STOPPED:
                reading = calls.read_last(text, self._grammar.tools)
            case Ending.CUT:
                reading = NotACall(len(text), Note(NoteCode.CUT_IN_CALL))
        self._conclude(text, reading)
        self.feed("")

    def _emit_rest(self) -> None:
        text, self._pending = self._pending, ""
        match self._since:
            case _Since.REASONING:
                text = text.lstrip(WHITESPACE)
            case _Since.CALL if not text.strip(WHITESPACE):
                text = ""
            case _Since.START | _Since.CALL | _Since.CONTENT:
                pass
        self._out.content(text)
