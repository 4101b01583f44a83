"""The records that a rollout is made of, and their form on disk.

Everything that Turnstile knows is a fold over these. A record holds what a call adds, never what it repeats.
Stored with msgpack; a new field has a default and a stored field never changes meaning.
"""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from turnstile.conversation import (
    CallKind,
    Ending,
    JsonText,
    Message,
    ReplyFinish,
    Sampling,
    Storage,
    ToolChoice,
    ToolMode,
    Usage,
)
from turnstile.generation import Cut, Draw, Finish, FinishedItem, Head, History, LogprobsMode, NodeRef, Note, Retention
from turnstile.reasons import DiscardReason, EndReason, FailReason, IncompleteReason
from turnstile.tokens import IdRun, LogprobRun, Segment


class SuspectLogprobs(enum.StrEnum):
    """What becomes of a call whose log-probabilities are not plausible."""

    MARK = "mark"
    """It is noted and counted."""
    MASK = "mask"
    """Nor is it trained on."""


class RolloutOpened(msgspec.Struct, frozen=True, tag="rollout_opened", omit_defaults=True):
    """A rollout, or its next attempt, began."""

    rollout_id: str
    attempt: int
    opened_at: datetime
    group_id: str | None = None
    task_id: str | None = None
    sample_index: int | None = None
    parent_rollout_id: str | None = None
    agent_name: str | None = None
    metadata: JsonText = "{}"
    agent_key_sha256: str = ""
    """Empty: no key is asked for."""
    opened_by: str = "operator"
    """`operator`, or `first_use` where rollouts need not be created first."""
    retention: Retention = Retention.RETAIN
    """The policy under which all its prompts are planned."""
    suspect_logprobs: SuspectLogprobs = SuspectLogprobs.MARK
    """The policy under which its trajectory is made."""


class ShownImage(msgspec.Struct, frozen=True, array_like=True):
    """An image that a call adds to its prompt."""

    at_A: int
    """Index of its placeholder in `added_A`."""
    sha256: str
    """Of its bytes, which the store has under that name."""
    media_type: str
    size_bytes: int
    width: int | None
    """In pixels, as its header says; None: the header cannot be read."""
    height: int | None
    address_sha256: str = ""
    """Of the address that it was fetched from, which itself may be a secret; empty: it came with the request."""


class ImageRun(msgspec.Struct, frozen=True, array_like=True):
    """What an engine ran in the place of an image's placeholder."""

    length: int
    """In ids."""
    num_tokens: int
    """Embeddings that it consumes; fewer than ids where rows or tiles are separated."""
    ids: IdRun = IdRun()
    """Its ids; empty: the placeholder `length` times."""


class CallStarted(msgspec.Struct, frozen=True, tag="call_started", omit_defaults=True):
    """A request was planned; durable before the engine hears anything."""

    rollout_id: str
    call_id: str
    started_at: datetime
    dialect: str
    head: str
    """Fingerprint."""
    new_head: Head | None
    """The head itself, where it is the rollout's first call with it."""
    engine: str
    engine_version: str
    parent: NodeRef | None
    held_length: int
    """How many ids of the parent's path the prompt keeps."""
    added_A: IdRun
    added_segments: tuple[Segment, ...]
    prompt_sha256: str
    """Ids hash of the whole prompt, held and added, with one placeholder for each image."""
    history: History
    covered_M: int
    """How many leading messages of the request the parent's path stands for."""
    new_M: tuple[Message, ...]
    """The messages behind those."""
    sampling: Sampling
    """As the client gave it."""
    draw: Draw
    """As the engine was asked; `seed` and `choice` are the first choice's."""
    body_digest: str
    """Equal for two requests that mean the same, delivery aside."""
    idempotency_key: str = ""
    agent_name: str = ""
    instructions_M: int = 0
    """How many leading messages of the request hold for it alone: a request that names its answer has them not."""
    storage: Storage = Storage.PRIVATE
    """Whether later requests may name its answer."""
    notes: tuple[Note, ...] = ()
    replayed: tuple[NodeRef, ...] = ()
    """Which completion each `replayed` segment of added_segments was drawn by, in order."""
    echoed: Message | None = None
    """The parent's answer as the client sent it back, where that is another spelling than the one handed out."""
    tool_choice: ToolChoice = ToolMode.AUTO
    ending: Ending = Ending.ANSWER
    """Whether a last message of the assistant's was to be continued."""
    kind: CallKind = CallKind.TURN
    purpose: str = ""
    """What the harness wanted an auxiliary call for."""
    parent_agent: str = ""
    """Who called the sub-agent that `agent_name` names, as the harness told it."""
    images: tuple[ShownImage, ...] = ()
    """The images behind the placeholders in `added_A`, in order."""
    placeholder_id: int | None = None
    """The id that stands for each of them; None: the prompt has no image."""
    engine_name: str = ""
    """Which of the engines it went to, as host and port; empty in records from before there were names."""
    heard: tuple[str, ...] = ()
    """Calls whose answers had arrived since the call before; empty also in records from before they were named."""


class CallJoined(msgspec.Struct, frozen=True, tag="call_joined"):
    """A repeat of an earlier request was given that one's answer; nothing was sampled for it."""

    rollout_id: str
    joined_at: datetime
    call_id: str
    """The call whose answer it was given."""
    how: str
    """`coalesced` with the running call, or `replayed` from its answer."""


class PolicyRange(msgspec.Struct, frozen=True, array_like=True):
    """Ids [start_S, end_S) of a completion and the policy versions that may have sampled them."""

    start_S: int
    end_S: int
    lowest: int | None
    """Equal to `highest`: this very version. Both None: unknown."""
    highest: int | None
    label: str = ""
    """What the engine calls the version; empty if it did not say."""


class EngineCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of several requests to the engine that a completion took."""

    ids: int
    """How many of the completion's ids it sampled."""
    engine_request_id: str = ""
    engine_finish_reason: str = ""
    discarded_S: IdRun = IdRun()
    """What it had sampled, where that was thrown away and the next request began anew."""


class SampledChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One completion and what it was handed out as."""

    choice: int
    ids_S: IdRun
    logprobs_S: LogprobRun | None
    message: Message
    """As handed to the client."""
    reply_finish: ReplyFinish
    finish: Finish
    engine_finish_reason: str
    usage: Usage
    logprobs_mode: LogprobsMode
    logprobs_temperature: float | None
    cut: Cut = Cut.NONE
    stop_string: str = ""
    engine_request_id: str = ""
    sampler_echo: JsonText = ""
    policy_min: int | None = None
    policy_max: int | None = None
    incomplete: tuple[IncompleteReason, ...] = ()
    notes: tuple[Note, ...] = ()
    placeholders_S: tuple[int, ...] = ()
    """Indices of ids that are an image's placeholder, which only an image may put there."""
    image_runs: tuple[ImageRun, ...] = ()
    """What was run for the last images of the prompt, in order: at least for those that the call adds. Empty: there
    are none, or the engine did not say."""
    policy_ranges: tuple[PolicyRange, ...] = ()
    """Tiles the ids; empty: policy_min and policy_max hold for each of them, and there is no more to say."""
    engine_calls: tuple[EngineCall, ...] = ()
    """The requests that it took, in order; empty: one."""


class TurnCommitted(msgspec.Struct, frozen=True, tag="turn_committed"):
    """An answer was verified; durable before its last byte leaves."""

    rollout_id: str
    call_id: str
    finished_at: datetime
    choices: tuple[SampledChoice, ...]


class PartialChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of the ids that one choice of a failed call had sampled."""

    logprobs_S: LogprobRun | None = None
    """One for each id; None: the engine had not said."""
    logprobs_mode: LogprobsMode = LogprobsMode.NONE
    logprobs_temperature: float | None = None
    items: tuple[FinishedItem, ...] = ()
    """What clients had been told in full; none where the ids cannot be trusted."""
    policy_min: int | None = None
    policy_max: int | None = None
    placeholders_S: tuple[int, ...] = ()
    """As in `SampledChoice`."""


class CallFailed(msgspec.Struct, frozen=True, tag="call_failed", omit_defaults=True):
    """A call ended without a turn. What was sampled by then is kept, and never trained."""

    rollout_id: str
    call_id: str
    """Empty: the request failed before it was planned."""
    failed_at: datetime
    reason: FailReason
    problem: str
    dialect: str = ""
    status: int = 0
    partial_S: IdRun = IdRun()
    """What the first choice had sampled."""
    other_partials_S: tuple[IdRun, ...] = ()
    """What the other choices had sampled, in order."""
    partials: tuple[PartialChoice, ...] = ()
    """What is known of each of those, the first choice's first; empty in older records."""

    @property
    def partial_count(self) -> int:
        """Ids that all choices had sampled."""
        return len(self.partial_S) + sum(map(len, self.other_partials_S))


class AnswerResumed(msgspec.Struct, frozen=True, tag="answer_resumed"):
    """A client sent back finished items of an answer that had broken off: their ids are held from now on."""

    rollout_id: str
    call_id: str
    """The call that failed."""
    choice: int
    length_S: int
    """How many of the ids that it had sampled are held: up to the end of the last item that came back."""
    at: datetime


class AnswerUndelivered(msgspec.Struct, frozen=True, tag="answer_undelivered"):
    """The client had gone when the last byte of an answer was due."""

    rollout_id: str
    call_id: str
    at: datetime
    reason: DiscardReason


class RolloutStatus(enum.StrEnum):
    """How a rollout ended, as its runner said."""

    RUNNING = "running"
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    FAILED = "failed"
    ABORTED = "aborted"


class RolloutFinished(msgspec.Struct, frozen=True, tag="rollout_finished", omit_defaults=True):
    """The rollout was closed; later calls are refused."""

    rollout_id: str
    finished_at: datetime
    status: RolloutStatus
    reward: float | None = None
    rewards: dict[str, float | None] = {}
    metadata: JsonText = "{}"
    reason: EndReason = EndReason.RUNNER
    """Who or what closed it."""


class CallRejected(msgspec.Struct, frozen=True, tag="call_rejected"):
    """An agent called a rollout that was closed."""

    rollout_id: str
    at: datetime
    reason: str


Record: TypeAlias = (
    RolloutOpened
    | CallStarted
    | CallJoined
    | TurnCommitted
    | CallFailed
    | AnswerResumed
    | AnswerUndelivered
    | RolloutFinished
    | CallRejected
)


def _enc_hook(value: Any) -> Any:  # noqa: ANN401 - msgspec's own signature
    match value:
        case IdRun():
            return value.packed
        case LogprobRun():
            return (value.packed, value.unknown)
        case _:
            raise NotImplementedError(f"cannot store {type(value).__name__}")


def _dec_hook(kind: type, value: Any) -> Any:  # noqa: ANN401 - msgspec's own signature
    if kind is IdRun:
        return IdRun(bytes(value))
    if kind is LogprobRun:
        packed, unknown = value
        return LogprobRun(bytes(packed), tuple(unknown))
    raise NotImplementedError(f"cannot read {kind.__name__}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_enc_hook)
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record, dec_hook=_dec_hook)


def encode(record: Record) -> bytes:
    """A record as msgpack bytes."""
    return _encoder.encode(record)


def decode(stored: bytes) -> Record:
    """A record from msgpack bytes. Raises: msgspec.ValidationError or DecodeError if they are no record."""
    return _decoder.decode(stored)
