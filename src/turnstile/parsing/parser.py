"""One choice of an answer: sampled ids in, what the client is told out."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import msgspec

from turnstile.conversation import (
    Message,
    ReplyDelta,
    ReplyFinish,
    Role,
    Text,
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
    ToolChoice,
    ToolMode,
    ToolSpec,
)
from turnstile.generation import Cut, Delta, Finish, Generation, Note, Opening
from turnstile.parsing.answer import AnswerReader, Ending, Grammar, Pieces
from turnstile.parsing.formats import AnswerFormat, tool_call_format
from turnstile.parsing.stops import StopFilter
from turnstile.parsing.visible import VisibleText
from turnstile.reasons import NoteCode
from turnstile.tokens import IdRun, Vocabulary


class ParserSetup(msgspec.Struct, frozen=True):
    """Everything that decides how an answer is read."""

    vocabulary: Vocabulary
    format: AnswerFormat
    mint: Callable[[], str]
    """A fresh tool-call id, unique in the rollout."""
    opening: Opening = Opening.ANSWER
    prefill: str = ""
    """What the client wrote of the answer, when opening is PREFILL; it is read, and not handed out again."""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = ToolMode.AUTO
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    """Ids that end an answer; never text, also where they are no control tokens."""
    choice: int = 0


class Parsed(msgspec.Struct, frozen=True):
    """One whole choice."""

    message: Message
    """What all deltas and the flush add up to."""
    flush: tuple[ReplyDelta, ...]
    """The last deltas: what could only be told at the end."""
    finish: ReplyFinish
    cut: Cut
    notes: tuple[Note, ...]
    stop_string: str
    """The stop string that ended the text, if one did."""


def _grammar(setup: ParserSetup) -> Grammar:
    """Tool markers mean something only where the client can take a call."""
    reads_calls = setup.tools and setup.tool_choice is not ToolMode.NONE and setup.format.has_syntax
    calls = tool_call_format(setup.format.tool_calls) if reads_calls else None
    return Grammar(setup.format.reasoning, calls, setup.tools)


def _markers(format: AnswerFormat) -> frozenset[str]:
    """Texts that stay visible where a tokenizer has them as control tokens."""
    reasoning = (format.reasoning.opening, format.reasoning.closing) if format.reasoning else ()
    if not format.has_syntax:
        return frozenset(reasoning)
    return frozenset((*reasoning, *tool_call_format(format.tool_calls).syntax.control_markers))


@final
class Parser:
    """Reads one choice; the answer is the same however its ids are cut into deltas.

    Markers count as text, whether the model sampled them as one token or letter by letter: engines' parsers work
    on text too, and a model that lost its special token to a quantised head still makes itself understood.
    """

    def __init__(self, setup: ParserSetup) -> None:
        """Read an answer that follows a prompt.

        Raises: CallerError if the format names no known tool calls.
        """
        self._setup = setup
        self._visible = VisibleText(setup.vocabulary, _markers(setup.format), setup.stop_ids)
        self._stops = StopFilter(setup.stop)
        self._reader = AnswerReader(_grammar(setup))
        match setup.opening:
            case Opening.ANSWER:
                pass
            case Opening.REASONING:
                self._reader.begin_in_reasoning()
            case Opening.PREFILL:
                self._reader.begin_behind(setup.prefill)
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._calls: list[ToolCall] = []

    def feed(self, delta: Delta) -> tuple[ReplyDelta, ...]:
        """What these ids make certain; their log-probabilities are handed on at once, text may lag behind.

        Within a delta the order is reasoning, content, calls: what breaks it begins a new one.

        Raises: nothing on the model's text, whatever it is.
        """
        self._reader.feed(self._stops.feed(self._visible.feed(delta.ids_S)))
        return self._told(self._reader.take(), delta.logprobs)

    @property
    def is_settled(self) -> bool:
        """Whether an answer that was cut here would be what was told so far and, but for whitespace, nothing else."""
        return self._visible.is_settled and self._stops.is_settled and self._reader.is_settled

    def finish(self, generation: Generation) -> Parsed:
        """The whole answer. Ids of the generation that no delta brought are read first.

        An aborted or failed generation is read like one cut by its length: what it is worth is decided elsewhere.
        """
        missing = generation.ids_S.slice(self._visible.count_S)
        self._reader.feed(self._stops.feed(self._visible.feed(missing) + self._visible.finish()))
        self._reader.feed(self._stops.finish())
        stop_string = generation.stop_string or self._stops.matched
        stopped = generation.finish is Finish.STOP or bool(stop_string)
        place = self._reader.finish(Ending.STOPPED if stopped else Ending.CUT)
        by_token = generation.finish is Finish.STOP and not generation.stop_string
        flush = self._told(self._reader.take(), ())
        return Parsed(
            message=self._message(),
            flush=flush,
            finish=self._reply_finish(generation, stop_string),
            cut=Cut.NONE if by_token else place,
            notes=(*self._hidden_notes(generation.ids_S, generation.finish), *self._reader.notes),
            stop_string=stop_string,
        )

    def _told(self, found: tuple[Pieces, ...], logprobs: tuple[TokenLogprob, ...]) -> tuple[ReplyDelta, ...]:
        first, *rest = found or (Pieces(),)
        deltas = (self._delta(first, logprobs), *(self._delta(pieces, ()) for pieces in rest))
        return tuple(delta for delta in deltas if not delta.is_empty)

    def _delta(self, pieces: Pieces, logprobs: tuple[TokenLogprob, ...]) -> ReplyDelta:
        self._reasoning.append(pieces.reasoning)
        self._content.append(pieces.content)
        deltas: list[ToolCallDelta] = []
        for raw in pieces.calls:
            call = ToolCall(self._setup.mint(), raw.name, raw.arguments)
            at = len(self._calls)
            self._calls.append(call)
            deltas.append(ToolCallDelta(at, call_id=call.call_id, name=call.name))
            deltas.append(ToolCallDelta(at, arguments=call.arguments, is_last=True))
        return ReplyDelta(self._setup.choice, pieces.reasoning, pieces.content, tuple(deltas), logprobs)

    def _message(self) -> Message:
        content = "".join(self._content)
        parts = (Text(content),) if content else ()
        return Message(Role.ASSISTANT, parts, "".join(self._reasoning), tuple(self._calls))

    def _reply_finish(self, generation: Generation, stop_string: str) -> ReplyFinish:
        if generation.finish is not Finish.STOP and not stop_string:
            return ReplyFinish.LENGTH
        return ReplyFinish.TOOL_CALLS if self._calls else ReplyFinish.STOP

    def _hidden_notes(self, ids_S: IdRun, finish: Finish) -> tuple[Note, ...]:
        last = len(ids_S) - 1 if finish is Finish.STOP else len(ids_S)
        return tuple(
            Note(NoteCode.SAMPLED_CONTROL_TOKEN, f"{token.name} at {token.index_S}")
            for token in self._visible.hidden
            if token.index_S < last
        )
