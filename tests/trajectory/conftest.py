"""The example rollout: two turns with a tool call, and one fork because the tool was run again."""

from __future__ import annotations

import copy
import hashlib
import json
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from turnstile.conversation import CallKind, Message, ReplyFinish, Role, Sampling, Text, Usage
from turnstile.generation import (
    BridgeKind,
    Draw,
    Finish,
    Forked,
    Head,
    History,
    LogprobsMode,
    NodeRef,
    Rerendered,
    Root,
    Spliced,
)
from turnstile.history.forest import Forest
from turnstile.journal import (
    AnswerUndelivered,
    CallFailed,
    CallJoined,
    CallStarted,
    Record,
    RolloutFinished,
    RolloutOpened,
    RolloutStatus,
    SampledChoice,
    TurnCommitted,
)
from turnstile.reasons import DiscardReason, FailReason, ForkReason, IncompleteReason, RerenderReason, RootReason
from turnstile.tokens import IdRun, LogprobRun, SegmentKind, tile
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.format import decode_line
from turnstile.trajectory.rules import Compaction, Rules, Unselected, Weights
from turnstile.trajectory.shapes import Rollout
from turnstile.trajectory.validate import validate

ROOT = [1, 10, 11, 2, 3, 1, 20]
FIRST = [30, 31, 40, 2]
BRIDGE = [3, 1, 50, 51, 2, 3, 1, 20]
SECOND = [60, 61, 2]
OTHER_BRIDGE = [3, 1, 50, 52, 2, 3, 1, 20]
OTHER = [70, 2]


def ids_hash(ids: list[int]) -> str:
    return hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()


def call(index: int, prompt: list[int], completion: list[int], **given: Any) -> dict[str, Any]:
    return {
        "call_id": f"c{index}",
        "engine_request_id": f"request-{index}",
        "parent": 0 if index else None,
        "history": "spliced",
        "history_reason": None,
        "fork_at": None,
        "kind": "agent",
        "kind_reason": None,
        "agent_name": "main",
        "dialect": "openai.chat",
        "choice_index": 0,
        "head": 0,
        "sampling": 0,
        "sequence": 0,
        "started_at": f"2026-12-01T10:00:0{2 * index}.000000Z",
        "finished_at": f"2026-12-01T10:00:0{2 * index + 1}.500000Z",
        "finish": "stop",
        "engine_finish_reason": "stop",
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(completion), "cached_tokens": None},
        "prompt_sha256": ids_hash(prompt),
        "completion_sha256": ids_hash(completion),
        "logprobs_mode": "processed",
        "logprobs_temperature": 1.0,
        "complete": True,
        "incomplete_reasons": [],
    } | given


def segments(last_call: int, last_length: int, first: dict[str, Any]) -> list[dict[str, Any]]:
    sampled = {"kind": "sampled", "policy_version_min": 7, "policy_version_max": 7}
    return [
        {"start": 0, "end": 5, "kind": "prompt"},
        {"start": 5, "end": 7, "kind": "scaffold"},
        {"start": 7, "end": 11, **sampled, "call": 0, **first},
        {"start": 11, "end": 12, "kind": "scaffold"},
        {"start": 12, "end": 17, "kind": "observation"},
        {"start": 17, "end": 19, "kind": "scaffold"},
        {"start": 19, "end": 19 + last_length, **sampled, "call": last_call, "trainable": True},
    ]


def sequence(index: int, **given: Any) -> dict[str, Any]:
    return {
        "sequence_id": f"ro-0001/{index}",
        "head": 0,
        "leaf_call": index + 1,
        "agent_name": "main",
        "prompt_length": 7,
        "token_weights": None,
        "advantages": None,
        "reward": None,
        "complete": True,
        "incomplete_reasons": [],
        "media": [],
        "arrays": {},
    } | given


def rollout() -> dict[str, Any]:
    add = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    asked = {"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"a":2,"b":2}'}}
    first_logprobs = [-0.25, -1.5, -0.125, -0.0625]
    owned = {"trainable": False, "mask_reason": "owned_by_other_sequence"}
    return {
        "format": "turnstile.rollout",
        "format_version": "1.0",
        "rollout_id": "ro-0001",
        "attempt": 1,
        "group_id": "g-17",
        "task_id": "calc/17",
        "sample_index": 0,
        "parent_rollout_id": None,
        "parent_call_id": None,
        "agent_name": "main",
        "created_at": "2026-12-01T10:00:00.000000Z",
        "finished_at": "2026-12-01T10:00:07.000000Z",
        "status": "completed",
        "stop_reason": "agent_exit",
        "error": None,
        "trainable": True,
        "mask_reasons": [],
        "reward": 1.0,
        "rewards": {"tests": 1.0, "style": None},
        "metrics": {"seconds": 7.0},
        "heads": [
            {
                "model": "demo-model",
                "model_revision": None,
                "engine": "vllm",
                "engine_version": "0.32.0",
                "tokenizer_sha256": "0" * 64,
                "vocab_size": 128,
                "chat_template_sha256": "1" * 64,
                "template_kwargs": {},
                "tools": 0,
                "processor_sha256": None,
                "mm_processor_kwargs": None,
            }
        ],
        "samplings": [
            {
                "temperature": 1.0,
                "top_p": 1.0,
                "top_k": -1,
                "min_p": 0.0,
                "repetition_penalty": 1.0,
                "presence_penalty": 0.0,
                "frequency_penalty": 0.0,
                "logit_bias": False,
                "seed": None,
                "max_tokens": 256,
                "stop": [],
                "stop_token_ids": [2],
                "structured_output": None,
            }
        ],
        "calls": [
            call(0, ROOT, FIRST, history="root", engine_finish_reason="tool_calls"),
            call(1, ROOT + FIRST + BRIDGE, SECOND),
            call(
                2,
                ROOT + FIRST + OTHER_BRIDGE,
                OTHER,
                history="forked",
                history_reason="message_edited:2",
                fork_at=14,
                sequence=1,
            ),
        ],
        "sequences": [
            sequence(
                0,
                token_ids=ROOT + FIRST + BRIDGE + SECOND,
                segments=segments(1, 3, {"trainable": True}),
                logprobs=[*first_logprobs, -0.75, -0.5, -0.03125],
                messages=[0, 1, 2, 3],
            ),
            sequence(
                1,
                token_ids=ROOT + FIRST + OTHER_BRIDGE + OTHER,
                segments=segments(2, 2, owned),
                logprobs=[*first_logprobs, -2.0, -0.0078125],
                messages=[0, 1, 4, 5],
            ),
        ],
        "messages": [
            {"role": "user", "content": "2+2?"},
            {"role": "assistant", "content": None, "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": "t1", "content": "4"},
            {"role": "assistant", "content": "It is 4."},
            {"role": "tool", "tool_call_id": "t1", "content": "error"},
            {"role": "assistant", "content": "I cannot."},
        ],
        "tools": [[add]],
        "token_counts": {"sampled": 9, "trainable": 9, "masked": {}, "discarded": {}},
        "extra": {"myorg.note": {"run": [1, None, "é"]}},
    }


@pytest.fixture
def example() -> dict[str, Any]:
    """The example as the JSON of its line, free to be damaged."""
    return rollout()


@pytest.fixture
def damaged() -> Callable[..., dict[str, Any]]:
    """The example with one value put in another's place, given the names and indices that lead there."""

    def damage(*path: str | int, value: Any) -> dict[str, Any]:
        fields = copy.deepcopy(rollout())
        at: Any = fields
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value
        return fields

    return damage


@pytest.fixture
def lines_of() -> Callable[[dict[str, Any]], list[str]]:
    """What `validate` says of a rollout given as JSON, a line a violation."""

    def lines(fields: dict[str, Any]) -> list[str]:
        return [str(violation) for violation in validate(decode_line(json.dumps(fields).encode()))]

    return lines


@pytest.fixture
def codes_of(lines_of) -> Callable[[dict[str, Any]], set[str]]:
    """The codes among those lines."""
    return lambda fields: {line.split()[0] for line in lines_of(fields)}


_SCAFFOLD, _REPLAYED = SegmentKind.SCAFFOLD, SegmentKind.REPLAYED


class Journal:
    """Writes the records of one made-up rollout; ids are whatever the test says."""

    def __init__(self) -> None:
        self.records: list[Record] = [
            RolloutOpened(rollout_id="ro", attempt=1, opened_at=self._at(0), agent_name="main", metadata='{"seed":3}')
        ]
        self.runs: dict[NodeRef, IdRun] = {}
        self.sampled: dict[NodeRef, list[int]] = {}
        self.clock = 0

    @staticmethod
    def _at(second: int) -> datetime:
        return datetime(2026, 12, 1, tzinfo=UTC) + timedelta(seconds=second)

    def now(self) -> datetime:
        self.clock += 1
        return self._at(self.clock)

    def start(
        self,
        name: str,
        added: list[int],
        parent: NodeRef | None = None,
        cut: int = 0,
        history: History | None = None,
        **given: Any,
    ) -> CallStarted:
        """A call whose prompt is its parent's ids without the last `cut`, and `added`.

        In front of `added` stand the answers of `replayed` without their last `lost` ids, each behind one id.
        """
        held_T = IdRun() if parent is None else self.runs[parent].slice(0, len(self.runs[parent]) - cut)
        replayed, lost = given.pop("replayed", ()), given.pop("lost", 0)
        put_back = [self.sampled[ref][: len(self.sampled[ref]) - lost] for ref in replayed]
        added = [*(each for run in put_back for each in (9, *run)), *added]
        before = [(length, kind) for run in put_back for length, kind in ((1, _SCAFFOLD), (len(run), _REPLAYED))]
        prompt_T = held_T + IdRun.of(added)
        first = not any(isinstance(record, CallStarted) for record in self.records)
        said = len(added) - sum(length for length, _ in before)
        opening = 2 if said > 2 else 0
        started = CallStarted(
            rollout_id="ro",
            call_id=name,
            started_at=self.now(),
            dialect="openai.chat",
            head="h",
            new_head=HEAD if first else None,
            engine="embedded",
            engine_version="1",
            parent=parent,
            held_length=len(held_T),
            added_A=IdRun.of(added),
            added_segments=tile(
                [
                    *before,
                    (said - opening, SegmentKind.OBSERVATION if parent else SegmentKind.PROMPT),
                    (opening, SegmentKind.SCAFFOLD),
                ]
            ),
            prompt_sha256=prompt_T.sha256(),
            history=history or (Root(RootReason.FIRST_CALL) if parent is None else Spliced(BridgeKind.SENTINEL)),
            covered_M=0,
            new_M=given.pop("new_M", (Message(Role.USER, (Text(f"say {added}"),)),)),
            sampling=Sampling(),
            draw=Draw(stop_ids=frozenset({2})),
            body_digest=name,
            replayed=tuple(replayed),
            **given,
        )
        self.records.append(started)
        self.runs[NodeRef(name, -1)] = prompt_T
        return started

    def commit(self, name: str, *choices: SampledChoice) -> list[NodeRef]:
        """The choices of a call that was started."""
        self.records.append(TurnCommitted("ro", name, self.now(), choices))
        prompt_T = self.runs[NodeRef(name, -1)]
        refs = [NodeRef(name, choice.choice) for choice in choices]
        for ref, choice in zip(refs, choices, strict=True):
            self.runs[ref] = prompt_T + choice.ids_S
            self.sampled[ref] = choice.ids_S.tolist()
        return refs

    def choice(
        self, name: str, ids: list[int], logprobs: list[float | None] | None = None, number: int = 0, **given: Any
    ) -> SampledChoice:
        """One completion of a call that was started."""
        known = LogprobRun.of([-0.5 - at for at in range(len(ids))] if logprobs is None else logprobs)
        return SampledChoice(
            choice=number,
            ids_S=IdRun.of(ids),
            logprobs_S=given.pop("logprobs_S", known),
            message=Message(Role.ASSISTANT, (Text(f"{name} {ids}"),)),
            reply_finish=ReplyFinish.STOP,
            finish=given.pop("finish", Finish.STOP if ids and ids[-1] == 2 else Finish.LENGTH),
            engine_finish_reason="stop",
            usage=given.pop("usage", Usage(len(self.runs[NodeRef(name, -1)]), len(ids))),
            logprobs_mode=LogprobsMode.RAW,
            logprobs_temperature=1.0,
            policy_min=given.pop("policy_min", 7),
            policy_max=given.pop("policy_max", 7),
            **given,
        )

    def turn(
        self,
        name: str,
        added: list[int],
        ids: list[int],
        parent: NodeRef | None = None,
        *,
        cut: int = 0,
        history: History | None = None,
        logprobs: list[float | None] | None = None,
        **given: Any,
    ) -> NodeRef:
        """A call with one choice, from start to commit."""
        rewritten = {known: given.pop(known) for known in ("replayed", "lost") if known in given}
        self.start(name, added, parent, cut, history, **rewritten)
        return self.commit(name, self.choice(name, ids, logprobs, **given))[0]

    def fail(self, name: str, reason: FailReason, partial: list[int]) -> None:
        """The end of a call that was started and came to nothing."""
        failed = CallFailed("ro", name, self.now(), reason, "it broke", partial_S=IdRun.of(partial), status=502)
        self.records.append(failed)

    def undelivered(self, name: str) -> None:
        """The client had gone."""
        self.records.append(AnswerUndelivered("ro", name, self.now(), DiscardReason.CLIENT_GONE))

    def joined(self, name: str) -> None:
        """A repeat was given the answer."""
        self.records.append(CallJoined("ro", self.now(), name, "replayed"))

    def finish(
        self,
        reward: float | None = 1.0,
        status: RolloutStatus = RolloutStatus.COMPLETED,
        metadata: str = '{"stop_reason":"agent_exit"}',
    ) -> None:
        """The runner closed the rollout."""
        self.records.append(RolloutFinished("ro", self.now(), status, reward, {"tests": 1.0}, metadata))

    def forest(self) -> Forest:
        """The fold of the records."""
        forest = Forest()
        for record in self.records:
            forest.apply(record)
        return forest


HEAD = Head("h", "demo-model", "0" * 64, 128, "1" * 64, "{}", ('{"type":"function","function":{"name":"add"}}',))


@pytest.fixture
def journal() -> Journal:
    """An open rollout without a call."""
    return Journal()


@pytest.fixture
def new_journal() -> Callable[[], Journal]:
    """Makes open rollouts, for tests that need one an example."""
    return Journal


@pytest.fixture
def compacted(journal: Journal) -> Callable[..., None]:
    """A turn `a`, a summary `s` of it that its harness asked for, and a turn `b` on a new root that quotes it."""

    def compact(summary: str, quoted: str = "Go on: A man asked for the sum of two and two.") -> None:
        first = journal.turn("a", [1, 10, 11, 20], [30, 2])
        journal.start("s", [3, 50, 20], first, kind=CallKind.AUXILIARY, purpose="compaction")
        said = Message(Role.ASSISTANT, (Text(summary),))
        journal.commit("s", msgspec.structs.replace(journal.choice("s", [60, 61, 2]), message=said))
        anew = (Message(Role.USER, (Text(quoted),)),)
        journal.start("b", [1, 12, 20], history=Root(RootReason.NEW_CONVERSATION), new_M=anew)
        journal.commit("b", journal.choice("b", [70, 2]))

    return compact


_TOKENS = st.integers(3, 12)
_ADDED = st.lists(_TOKENS, min_size=1, max_size=5)
_FORKS = [
    Forked(ForkReason.MESSAGE_EDITED, message_index=0, was="a", now="b"),
    Forked(ForkReason.REWOUND),
    Forked(ForkReason.MEDIA_CHANGED),
    Rerendered(RerenderReason.CLOSING_MISMATCH, "x"),
]
_ODD = [
    {},
    {},
    {},
    {"logprobs_S": None},
    {"incomplete": (IncompleteReason.UPSTREAM_TRUNCATED,)},
    {"finish": Finish.ABORT},
    {"policy_min": 6, "policy_max": 8},
    {"policy_min": None, "policy_max": None},
]
_RULES = st.builds(
    Rules,
    weights=st.sampled_from(Weights),
    compaction=st.sampled_from(Compaction),
    unselected=st.sampled_from(Unselected),
)
_AGENTS = ["", "", "", "searcher"]


@st.composite
def _completions(draw: Any) -> Any:
    """Ids, their log-probabilities, and what else is odd about them."""
    ids = draw(st.lists(_TOKENS, max_size=4)) + draw(st.sampled_from([[], [2]]))
    known = st.floats(-20, 0, width=32) | st.none()
    odd = draw(st.sampled_from(_ODD))
    return ids, draw(st.lists(known, min_size=len(ids), max_size=len(ids))), odd


def _continue_or_fork(data: Any, journal: Journal, name: str, refs: list[NodeRef]) -> None:
    """Start a call that continues, cuts, forks with some answers put back, or begins anew."""
    parent = data.draw(st.none() | st.sampled_from(refs), label="parent") if refs else None
    cut = data.draw(st.sampled_from([0, 0, 1]), label="cut") if parent and len(journal.runs[parent]) > 1 else 0
    fork = data.draw(st.none() | st.sampled_from(_FORKS), label="fork") if refs else None
    known = [ref for ref in refs if len(journal.sampled[ref]) > 1] if fork else []
    replayed = data.draw(st.lists(st.sampled_from(known), max_size=3), label="replayed") if known else []
    history = Forked(ForkReason.STOP_MISMATCH) if cut else fork
    kind = data.draw(st.sampled_from([CallKind.TURN] * 5 + [CallKind.AUXILIARY]), label="kind")
    journal.start(
        name,
        data.draw(_ADDED, label="added"),
        parent,
        cut,
        history,
        replayed=replayed,
        lost=data.draw(st.sampled_from([0, 1]), label="lost"),
        agent_name=data.draw(st.sampled_from(_AGENTS), label="agent"),
        kind=kind,
        purpose="title" if kind is CallKind.AUXILIARY else "",
    )


def _answer(data: Any, journal: Journal, name: str) -> list[NodeRef]:
    """What came of a call that was started."""
    outcome = data.draw(st.sampled_from(["turn", "turn", "turn", "choices", "fail", "open"]), label="outcome")
    if outcome == "fail":
        journal.fail(name, data.draw(st.sampled_from(FailReason)), data.draw(st.lists(_TOKENS, max_size=3)))
        return []
    if outcome == "open":
        return []
    count = 3 if outcome == "choices" else 1
    drawn = [data.draw(_completions(), label="completion") for _ in range(count)]
    made = [
        journal.choice(name, ids, logprobs, number=number, **odd) for number, (ids, logprobs, odd) in enumerate(drawn)
    ]
    found = journal.commit(name, *made)
    if data.draw(st.sampled_from([False, False, True]), label="undelivered"):
        journal.undelivered(name)
        if data.draw(st.booleans(), label="joined"):
            journal.joined(name)
    return found


def _compact(data: Any, journal: Journal, name: str, refs: list[NodeRef]) -> list[NodeRef]:
    """A harness sums its history up, and may begin anew with the summary."""
    parent = data.draw(st.sampled_from(refs), label="compacted")
    journal.start(name, data.draw(_ADDED), parent, kind=CallKind.AUXILIARY, purpose="compaction")
    ids, logprobs, odd = data.draw(_completions(), label="summary")
    journal.commit(name, journal.choice(name, ids, logprobs, **odd))
    said = data.draw(st.sampled_from([f"Go on from: {name} {ids}", "Go on."]), label="new root")
    anew = (Message(Role.USER, (Text(said),)),)
    journal.start(f"{name}+", data.draw(_ADDED), history=Root(RootReason.NEW_CONVERSATION), new_M=anew)
    return _answer(data, journal, f"{name}+")


def _slide(data: Any, journal: Journal, name: str, refs: list[NodeRef]) -> list[NodeRef]:
    """A window of screenshots slides: each step forks and puts all earlier answers back."""
    steps: list[NodeRef] = []
    for at in range(data.draw(st.integers(1, 3), label="window")):
        step = f"{name}w{at}"
        moved = Forked(ForkReason.MEDIA_CHANGED, message_index=0) if refs or steps else None
        journal.start(step, data.draw(_ADDED), history=moved, replayed=[ref for ref in steps if journal.sampled[ref]])
        steps += _answer(data, journal, step)
    return steps


def _grow(data: Any, journal: Journal) -> Forest:
    refs: list[NodeRef] = []
    for number in range(data.draw(st.integers(0, 6), label="calls")):
        name = f"c{number}"
        happened = data.draw(st.sampled_from(["call"] * 6 + ["compaction", "window"]), label="happened")
        if happened == "compaction" and refs:
            refs += _compact(data, journal, name, refs)
        elif happened == "window":
            refs += _slide(data, journal, name, refs)
        else:
            _continue_or_fork(data, journal, name, refs)
            refs += _answer(data, journal, name)
    if data.draw(st.booleans(), label="finished"):
        journal.finish(data.draw(st.none() | st.floats(-1, 1)), data.draw(st.sampled_from([*RolloutStatus][1:])))
    return journal.forest()


@pytest.fixture
def any_forest() -> Callable[[Any], Forest]:
    """Grows any forest from hypothesis' `data`.

    Rewinds, edits, several choices, sub-agents, failed and open calls, compaction, a sliding window of screenshots,
    answers that nobody took, odd numbers.
    """
    return lambda data: _grow(data, Journal())


@pytest.fixture
def any_rollout(any_forest: Callable[[Any], Forest]) -> Callable[[Any], Rollout]:
    """The trajectory of any forest, under any rules that a user may choose."""
    return lambda data: assemble(any_forest(data), data.draw(_RULES, label="rules"))
