"""The token forest of one attempt of a rollout: a fold over its records, the same live and after a restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import assert_never

import msgspec

from turnstile.conversation import Message, Past, Role
from turnstile.errors import StoreError
from turnstile.generation import Head, History, NodeRef
from turnstile.history.broken_off import BrokenOff, broken_off
from turnstile.history.calls import CallState, newly_heard
from turnstile.history.digest import Key, extended, head_key
from turnstile.history.echoes import Echoes
from turnstile.history.equality import Pairing, continued
from turnstile.history.index import PrefixIndex
from turnstile.history.node import HeldRuns, Node
from turnstile.journal import (
    AnswerResumed,
    AnswerUndelivered,
    CallFailed,
    CallJoined,
    CallRejected,
    CallStarted,
    Record,
    RolloutFinished,
    RolloutOpened,
    SampledChoice,
    TurnCommitted,
)
from turnstile.tokens import IdRun, SegmentKind

__all__ = ["Forest", "Node"]


class _PromptKeys(msgspec.Struct, frozen=True):
    """The keys along the new part of a prompt, and where its answer stands."""

    keys: tuple[Key, ...]
    """The key of what the parent's path stands for, then one behind each new message."""
    prefill: Message | None
    before: Key
    """Of what stands before the answer, the text that it continues left out."""
    whole: Key
    """Of the whole prompt."""


class _Broken(msgspec.Struct, frozen=True):
    """A broken-off answer and the prompt that it was sampled from."""

    answer: BrokenOff
    prompt: _PromptKeys


class Forest:
    """All that the records of one attempt say. `apply` is the only thing that changes it.

    Built once for live calls and once at a restart, from the same records, it is the same forest.
    """

    def __init__(self) -> None:
        self.index = PrefixIndex()
        self.echoes = Echoes()
        self._opened: RolloutOpened | None = None
        self._finished: RolloutFinished | None = None
        self._calls: dict[str, CallState] = {}
        self._nodes: dict[NodeRef, Node] = {}
        self._heads: dict[str, Head] = {}
        self._refused: list[CallFailed] = []
        self._rejected: list[CallRejected] = []
        self._openings: dict[Key, History] = {}
        self._running: dict[str, _PromptKeys] = {}
        self._broken: dict[NodeRef, _Broken] = {}
        self._broken_behind: dict[Key, list[BrokenOff]] = {}
        self._runs = HeldRuns()

    @classmethod
    def of(cls, records: Iterable[Record]) -> Forest:
        """The forest that these records make, in their order. Raises: StoreError as `apply`."""
        forest = cls()
        for record in records:
            forest.apply(record)
        return forest

    @property
    def opened(self) -> RolloutOpened | None:
        """How the attempt began; None before its first record."""
        return self._opened

    @property
    def finished(self) -> RolloutFinished | None:
        """How the attempt was closed; None while it is open."""
        return self._finished

    @property
    def calls(self) -> Mapping[str, CallState]:
        """Planned calls by id, in order of start."""
        return MappingProxyType(self._calls)

    @property
    def call_count(self) -> int:
        """How many calls were planned."""
        return len(self._calls)

    @property
    def open_calls(self) -> tuple[CallStarted, ...]:
        """Calls without an end. After a restart they are failed calls: the process that ran them is gone."""
        return tuple(state.started for state in self._calls.values() if state.is_open)

    @property
    def heads(self) -> Mapping[str, Head]:
        """Heads by fingerprint, in order of first use."""
        return MappingProxyType(self._heads)

    @property
    def nodes(self) -> Sequence[Node]:
        """Completions in commit order."""
        return tuple(self._nodes.values())

    def latest(self, count: int) -> Iterable[Node]:
        """At most so many completions, the newest first."""
        return islice(reversed(self._nodes.values()), count)

    @property
    def node_count(self) -> int:
        """How many completions are held."""
        return len(self._nodes)

    @property
    def refused(self) -> Sequence[CallFailed]:
        """Requests that failed before they were planned."""
        return tuple(self._refused)

    @property
    def has_broken_off(self) -> bool:
        """Whether there is an answer that broke off, is not held, and of which a client may bring items back."""
        return any(ref not in self._nodes for ref in self._broken)

    def broken_off(self, key: Key) -> Sequence[BrokenOff]:
        """Such answers to the prompt of that key, in order of failure."""
        return tuple(broken for broken in self._broken_behind.get(key, ()) if broken.ref not in self._nodes)

    @property
    def rejected(self) -> Sequence[CallRejected]:
        """Calls that came after the end."""
        return tuple(self._rejected)

    def node(self, ref: NodeRef) -> Node:
        """One completion. Raises: KeyError if it is not held."""
        return self._nodes[ref]

    def prompt_sha256(self, parent: NodeRef | None, held_T: IdRun, added_A: IdRun) -> str:
        """The ids hash of a prompt; where `held_T` is the parent's whole path, it costs what is new.

        Shapes: held_T [H], added_A [A]; the prompt is [H + A].
        """
        node = None if parent is None else self._nodes.get(parent)
        if node is None or node.held_T != held_T:
            return (held_T + added_A).sha256()
        return self._runs.digest_of(node).then(added_A).hexdigest()

    def opening(self, prompt_key: Key) -> History | None:
        """How an earlier prompt of the same head and messages came about, if it was one without a parent."""
        return self._openings.get(prompt_key)

    def check(self, record: Record) -> None:
        """See that a record follows from the records before it; nothing changes.

        Raises: StoreError if it contradicts them.
        """
        match record:
            case RolloutOpened():
                if self._opened is not None:
                    raise _contradiction(f"Rollout {record.rollout_id!r} is opened twice within one attempt")
            case CallStarted():
                self._check_start(record)
            case TurnCommitted():
                self._running_state(record.call_id, "committed")
            case CallFailed():
                if record.call_id:
                    self._running_state(record.call_id, "failed")
            case CallJoined() | AnswerUndelivered():
                self._state(record.call_id, "joined or left")
            case AnswerResumed():
                self._check_resumed(record)
            case RolloutFinished() | CallRejected():
                pass
            case _:
                assert_never(record)

    def allows(self, record: Record) -> bool:
        """Whether a record follows from the records before it."""
        try:
            self.check(record)
        except StoreError:
            return False
        return True

    def apply(self, record: Record) -> None:
        """Add what a record says.

        Raises: StoreError if it contradicts the records before it; the forest is then unchanged.
        """
        self.check(record)
        match record:
            case RolloutOpened():
                self._open(record)
            case CallStarted():
                self._start(record)
            case TurnCommitted():
                self._commit(record)
            case CallFailed():
                self._fail(record)
            case CallJoined():
                state = self._state(record.call_id, "joined")
                self._calls[record.call_id] = msgspec.structs.replace(
                    state, joined=(*state.joined, record), heard_since=True
                )
            case AnswerResumed():
                self._resume(record)
            case AnswerUndelivered():
                state = self._state(record.call_id, "undelivered")
                self._calls[record.call_id] = msgspec.structs.replace(state, undelivered=record, heard_since=False)
            case RolloutFinished():
                self._finished = record
            case CallRejected():
                self._rejected.append(record)
            case _:
                assert_never(record)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Forest):
            return NotImplemented
        return self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]  # it grows

    def _facts(self) -> tuple[object, ...]:
        return (
            self._opened,
            self._finished,
            list(self._calls.items()),
            list(self._nodes.values()),
            list(self._heads.items()),
            self._refused,
            self._rejected,
            self._openings,
            self._running,
            self._broken,
            self.index,
        )

    def _open(self, record: RolloutOpened) -> None:
        self._opened = record

    def _start(self, record: CallStarted) -> None:
        keys = self._prompt_keys(record)
        self._calls[record.call_id] = CallState(record)
        self._running[record.call_id] = keys
        if record.new_head is not None:
            self._heads.setdefault(record.head, record.new_head)
        if record.parent is None:
            self._openings.setdefault(keys.whole, record.history)
        for call_id in tuple(newly_heard(record, self._calls)):
            self._calls[call_id] = msgspec.structs.replace(self._calls[call_id], heard=True)

    def _commit(self, record: TurnCommitted) -> None:
        state = self._running_state(record.call_id, "committed")
        prompt = self._running.pop(record.call_id)
        self._calls[record.call_id] = msgspec.structs.replace(state, committed=record)
        for choice in record.choices:
            self._grow(state.started, choice, prompt)

    def _fail(self, record: CallFailed) -> None:
        if not record.call_id:
            self._refused.append(record)
            return
        state = self._running_state(record.call_id, "failed")
        prompt = self._running.pop(record.call_id)
        self._calls[record.call_id] = msgspec.structs.replace(state, failed=record)
        if prompt.prefill is None:
            for answer in broken_off(state.started, record):
                self._broken[answer.ref] = _Broken(answer, prompt)
                self._broken_behind.setdefault(prompt.before, []).append(answer)

    def _resume(self, record: AnswerResumed) -> None:
        broken = self._broken[NodeRef(record.call_id, record.choice)]
        # Of two requests that bring items back at the same time the first one says how many are held.
        if broken.answer.ref not in self._nodes:
            started = self._calls[record.call_id].started
            self._grow(started, broken.answer.choice(record.length_S), broken.prompt)

    def _grow(self, started: CallStarted, choice: SampledChoice, prompt: _PromptKeys) -> None:
        message = choice.message if prompt.prefill is None else continued(prompt.prefill, choice.message)
        parent = None if started.parent is None else self._nodes[started.parent]
        own_M = started.new_M if prompt.prefill is None else started.new_M[:-1]
        node = Node(
            ref=NodeRef(started.call_id, choice.choice),
            parent=parent,
            started=started,
            choice=choice,
            message=message,
            prefill=prompt.prefill,
            prompt_key=prompt.before,
            key=extended(prompt.before, message),
            length_M=(0 if parent is None else parent.length_M) + len(started.new_M) + (prompt.prefill is None),
            before=_past(parent, started, prompt.prefill).then(own_M),
            runs=self._runs,
        )
        self._nodes[node.ref] = node
        if parent is not None:
            parent.grow(node)
        self.index.add(node, prompt.keys, prompt.whole)

    def _prompt_keys(self, started: CallStarted) -> _PromptKeys:
        parent = None if started.parent is None else self._nodes[started.parent]
        keys = [head_key(started.head) if parent is None else parent.key]
        pairing = Pairing(() if parent is None else parent.message.calls)
        for message in started.new_M:
            keys.append(extended(keys[-1], message, pairing.place(message)))
        if started.new_M and started.new_M[-1].role is Role.ASSISTANT:
            return _PromptKeys(tuple(keys), started.new_M[-1], keys[-2], keys[-1])
        if not started.new_M and parent is not None:
            return _PromptKeys(tuple(keys), parent.message, parent.prompt_key, keys[-1])
        return _PromptKeys(tuple(keys), None, keys[-1], keys[-1])

    def _state(self, call_id: str, what: str) -> CallState:
        state = self._calls.get(call_id)
        if state is None:
            raise _contradiction(f"Call {call_id!r} is {what} but was never started")
        return state

    def _check_start(self, record: CallStarted) -> None:
        if record.call_id in self._calls:
            raise _contradiction(f"Call {record.call_id!r} is started twice")
        if record.parent is not None and record.parent not in self._nodes:
            raise _contradiction(f"Call {record.call_id!r} builds on {record.parent}, which is not held")
        replayed = sum(1 for segment in record.added_segments if segment.kind is SegmentKind.REPLAYED)
        if replayed != len(record.replayed):
            raise _contradiction(
                f"Call {record.call_id!r} puts back {len(record.replayed)} answers in {replayed} places"
            )
        if unknown := [ref for ref in record.replayed if ref not in self._nodes]:
            raise _contradiction(f"Call {record.call_id!r} puts back {unknown[0]}, which is not held")

    def _check_resumed(self, record: AnswerResumed) -> None:
        broken = self._broken.get(NodeRef(record.call_id, record.choice))
        if broken is None:
            raise _contradiction(f"An answer of call {record.call_id!r} is resumed, but none of its items is known")
        if record.length_S not in {taken.length_S for taken in broken.answer.beginnings()}:
            raise _contradiction(
                f"Call {record.call_id!r} is resumed behind {record.length_S} ids, where no item of its answer ends"
            )

    def _running_state(self, call_id: str, what: str) -> CallState:
        state = self._state(call_id, what)
        if not state.is_open:
            raise _contradiction(f"Call {call_id!r} is {what} after it had ended")
        return state


def _past(parent: Node | None, started: CallStarted, prefill: Message | None) -> Past:
    """Of what stands before the new messages of a call."""
    if parent is None:
        return Past()
    return parent.before if prefill is not None and not started.new_M else parent.past


def _contradiction(problem: str) -> StoreError:
    return StoreError(problem, "Restore the journal from a copy, or start the rollout again under another id")
