"""A conversation between a client and the forest, told as a dialogue, with made-up ids."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import msgspec
import pytest

from turnstile.conversation import (
    Call,
    Ending,
    Message,
    ReplyFinish,
    Role,
    Sampling,
    Text,
    ToolCall,
    ToolSpec,
    Usage,
)
from turnstile.generation import BridgeKind, Draw, Finish, Head, LogprobsMode, Match, NodeRef, Rerendered, Spliced
from turnstile.history.forest import Forest
from turnstile.history.match import match
from turnstile.journal import AnswerUndelivered, CallFailed, CallStarted, Record, SampledChoice, TurnCommitted
from turnstile.reasons import DiscardReason, FailReason, RerenderReason
from turnstile.tokens import IdRun, LogprobRun, SegmentKind, tile

NOW = datetime(2026, 12, 1, tzinfo=UTC)


class Dialogue:
    """One client's view of a conversation. `other()` is another client of the same rollout."""

    def __init__(self, forest: Forest, records: list[Record], fresh: itertools.count[int]) -> None:
        self.forest = forest
        self.records = records
        self._fresh = fresh
        self.head_name = "main"
        self.tools: tuple[ToolSpec, ...] = ()
        self.messages: list[Message] = []
        self.ending = Ending.ANSWER
        self.ref = NodeRef("none")
        """The completion that was sampled last."""

    @classmethod
    def fresh(cls) -> Dialogue:
        """A rollout that nobody has called yet."""
        return cls(Forest(), [], itertools.count(1))

    # what the client has in its history

    def system(self, text: str) -> Dialogue:
        return self.add(Message(Role.SYSTEM, (Text(text),)))

    def user(self, text: str) -> Dialogue:
        return self.add(Message(Role.USER, (Text(text),)))

    def tool(self, text: str, call_id: str | None = None) -> Dialogue:
        """A result; of the last answer's first call unless said."""
        calls = next(m.calls for m in reversed(self.messages) if m.role is Role.ASSISTANT)
        return self.add(Message(Role.TOOL, (Text(text),), call_id=calls[0].call_id if call_id is None else call_id))

    def assistant(self, text: str, reasoning: str = "", calls: tuple[ToolCall, ...] = ()) -> Dialogue:
        """An assistant message that the client wrote itself."""
        return self.add(Message(Role.ASSISTANT, (Text(text),) if text else (), reasoning=reasoning, calls=calls))

    def add(self, *messages: Message) -> Dialogue:
        self.messages += messages
        return self

    def edit(self, at: int, **changes: object) -> Dialogue:
        if "text" in changes:
            changes["parts"] = (Text(str(changes.pop("text"))),)
        self.messages[at] = msgspec.structs.replace(self.messages[at], **changes)
        return self

    def back_to(self, length: int) -> Dialogue:
        """Forget the messages from an index on."""
        del self.messages[length:]
        return self

    def other(self, *messages: Message) -> Dialogue:
        """Another client of the same rollout, with a history of its own."""
        other = Dialogue(self.forest, self.records, self._fresh)
        other.head_name, other.tools, other.messages = self.head_name, self.tools, list(messages)
        return other

    def copy(self) -> Dialogue:
        return self.other(*self.messages)

    # what the model answers

    def sampled(self, text: str = "", *calls: tuple[str, str], reasoning: str = "", **choice: object) -> Dialogue:
        """Ask, commit an answer, and take it into the history as it was handed out."""
        started = self.start()
        message = Message(
            Role.ASSISTANT,
            (Text(text),) if text else (),
            reasoning=reasoning,
            calls=tuple(
                ToolCall(f"{started.call_id}-{at}", name, arguments) for at, (name, arguments) in enumerate(calls)
            ),
        )
        self.commit(started, message, **choice)
        return self.add(message)

    def commit(self, started: CallStarted, *messages: Message, **choice: object) -> Dialogue:
        choices = tuple(self._choice(at, message, **choice) for at, message in enumerate(messages))
        self.keep(TurnCommitted("r", started.call_id, NOW, choices))
        self.ref = NodeRef(started.call_id)
        return self

    def start(self, rerender: bool = False) -> CallStarted:
        """Plan a call as the one path does: splice onto the matched parent, or render all."""
        found = self.match()
        number = next(self._fresh)
        added = IdRun.of(range(number * 100, number * 100 + 3))
        parent = None if rerender else found.parent
        held_T = IdRun() if parent is None else parent.held_T
        new_M = found.new_M
        if rerender and found.parent is not None:
            new_M = (*found.parent.history_M, found.parent.message, *new_M)
        spliced = Spliced(BridgeKind.SENTINEL)
        started = CallStarted(
            rollout_id="r",
            call_id=f"c{number}",
            started_at=NOW,
            dialect="openai.chat",
            head=self.head.fingerprint,
            new_head=self.head,
            engine="fake",
            engine_version="0",
            parent=None if parent is None else parent.ref,
            held_length=len(held_T),
            added_A=added,
            added_segments=tile([(3, SegmentKind.OBSERVATION)]),
            prompt_sha256=(held_T + added).sha256(),
            history=Rerendered(RerenderReason.SENTINEL_LOST) if rerender else found.departure or spliced,
            covered_M=0 if parent is None else found.covered_M,
            new_M=new_M,
            sampling=Sampling(),
            draw=Draw(),
            body_digest="",
            notes=found.notes,
        )
        self.keep(started)
        return started

    def fail(self) -> Dialogue:
        started = self.start()
        self.keep(CallFailed("r", started.call_id, NOW, FailReason.ENGINE_REFUSED, "no"))
        return self

    def undelivered(self) -> Dialogue:
        """The last answer never reached the client."""
        self.keep(AnswerUndelivered("r", self.ref.call_id, NOW, DiscardReason.CLIENT_GONE))
        return self

    def keep(self, record: Record) -> None:
        self.records.append(record)
        self.forest.apply(record)

    # what is found

    @property
    def head(self) -> Head:
        return Head(self.head_name, "m", "t", 1000, "c", "{}", ())

    @property
    def call(self) -> Call:
        return Call("openai.chat", "m", tuple(self.messages), tools=self.tools, ending=self.ending)

    def match(self) -> Match:
        return match(self.forest, self.head, self.call)

    def found(self) -> tuple[NodeRef | None, int, object, list[str]]:
        """Parent, covered messages, departure and note codes of the request as it stands."""
        found = self.match()
        parent = None if found.parent is None else found.parent.ref
        return parent, found.covered_M, found.departure, [str(note.code) for note in found.notes]

    def _choice(self, at: int, message: Message, **choice: object) -> SampledChoice:
        number = next(self._fresh)
        plain = SampledChoice(
            choice=at,
            ids_S=IdRun.of(range(number * 100, number * 100 + 2)),
            logprobs_S=LogprobRun.of([-0.5, -0.25]),
            message=message,
            reply_finish=ReplyFinish.STOP,
            finish=Finish.STOP,
            engine_finish_reason="stop",
            usage=Usage(3, 2),
            logprobs_mode=LogprobsMode.RAW,
            logprobs_temperature=1.0,
        )
        return msgspec.structs.replace(plain, **choice)


@pytest.fixture
def dialogue() -> Dialogue:
    """A rollout that nobody has called yet."""
    return Dialogue.fresh()


@pytest.fixture(scope="session")
def new_dialogue() -> type[Dialogue]:
    """For tests that need many rollouts: `new_dialogue.fresh()`."""
    return Dialogue
