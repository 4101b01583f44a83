"""One choice of an answer that the engine's own parser read: its words in, what the client is told out.

For templates whose format Turnstile does not know. The ids stay what they are; only how they read comes from the
engine. Its tool-call ids are replaced by ours, which are unique in a rollout.
"""

from __future__ import annotations

from typing import final

from turnstile.conversation import (
    Message,
    ReplyDelta,
    ReplyFinish,
    Role,
    Text,
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
)
from turnstile.generation import Cut, Delta, Finish, Generation
from turnstile.parsing.parser import Parsed, Parser, ParserSetup


class _Growing:
    """A call whose arguments are still coming."""

    def __init__(self, call_id: str, name: str) -> None:
        self.call_id = call_id
        self.name = name
        self.arguments: list[str] = []


def parser_for(setup: ParserSetup) -> Parser | EngineReading:
    """What reads an answer: Turnstile's parser, or the engine's as it says.

    Raises: CallerError if the format names no known tool calls.
    """
    return EngineReading(setup) if setup.format.is_read_by_engine else Parser(setup)


@final
class EngineReading:
    """Has the same `feed` and `finish` as `Parser`."""

    def __init__(self, setup: ParserSetup) -> None:
        """Pass on what the engine reads; of the setup only the minting of ids and the choice count."""
        self._setup = setup
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._calls: dict[int, _Growing] = {}
        """By the engine's index, in order of appearance."""
        self._open: int | None = None

    def feed(self, delta: Delta) -> tuple[ReplyDelta, ...]:
        """What the engine read by now; log-probabilities are handed on at once."""
        return self._told(delta.said or ReplyDelta(), delta.logprobs)

    def finish(self, generation: Generation) -> Parsed:
        """The whole answer.

        Where it ended is known only as far as the engine's words tell: in a call, in the reasoning or in the text.
        """
        last = generation.said or ReplyDelta()
        flush = (*self._told(last, ()), *self._closed())
        by_token = generation.finish is Finish.STOP and not generation.stop_string
        return Parsed(
            message=self._message(),
            flush=flush,
            finish=self._reply_finish(generation),
            cut=Cut.NONE if by_token else self._place(),
            notes=(),
            stop_string=generation.stop_string,
        )

    def _told(self, said: ReplyDelta, logprobs: tuple[TokenLogprob, ...]) -> tuple[ReplyDelta, ...]:
        self._reasoning.append(said.reasoning)
        self._content.append(said.content)
        calls = tuple(piece for call in said.calls for piece in self._pieces(call))
        told = ReplyDelta(self._setup.choice, said.reasoning, said.content, calls, logprobs)
        return () if told.is_empty else (told,)

    def _pieces(self, said: ToolCallDelta) -> tuple[ToolCallDelta, ...]:
        pieces: list[ToolCallDelta] = []
        index = list(self._calls).index(said.index) if said.index in self._calls else len(self._calls)
        if said.index not in self._calls:
            pieces += [piece for delta in self._closed() for piece in delta.calls]
            grown = _Growing(self._setup.mint(), said.name)
            self._calls[said.index] = grown
            self._open = index
            pieces.append(ToolCallDelta(index, grown.call_id, grown.name))
        if said.arguments:
            self._calls[said.index].arguments.append(said.arguments)
            pieces.append(ToolCallDelta(index, arguments=said.arguments))
        return tuple(pieces)

    def _closed(self) -> tuple[ReplyDelta, ...]:
        """The end of the call that was open: the engine does not say it."""
        if self._open is None:
            return ()
        index, self._open = self._open, None
        return (ReplyDelta(self._setup.choice, calls=(ToolCallDelta(index, is_last=True),)),)

    def _message(self) -> Message:
        content = "".join(self._content)
        parts = (Text(content),) if content else ()
        calls = tuple(ToolCall(each.call_id, each.name, "".join(each.arguments)) for each in self._calls.values())
        return Message(Role.ASSISTANT, parts, "".join(self._reasoning), calls)

    def _reply_finish(self, generation: Generation) -> ReplyFinish:
        if generation.finish is not Finish.STOP and not generation.stop_string:
            return ReplyFinish.LENGTH
        return ReplyFinish.TOOL_CALLS if self._calls else ReplyFinish.STOP

    def _place(self) -> Cut:
        if self._calls:
            return Cut.CALL
        is_thinking = any(self._reasoning) and not any(self._content)
        return Cut.REASONING if is_thinking else Cut.CONTENT
