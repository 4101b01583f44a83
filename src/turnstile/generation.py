"""What the engine is asked to run and what it answered, in ids."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from turnstile.conversation import JsonText, Media, Message, Past, ReplyDelta, TokenLogprob, ToolChoice, Usage
from turnstile.expansion import ExpandedIds
from turnstile.reasons import ForkReason, NoteCode, RerenderReason, RootReason
from turnstile.tokens import IdRun, LogprobRun, PolicySpan, Segment

_LISTED = 3


class Note(msgspec.Struct, frozen=True, array_like=True):
    """Something noticed, forgiven or repaired, with the facts."""

    code: NoteCode
    detail: str = ""


def listed(found: Mapping[NoteCode, Sequence[int]]) -> tuple[Note, ...]:
    """One note a code with the indices of the messages that it is about; the first few, so that records stay short."""
    return tuple(Note(code, _places(indices)) for code, indices in found.items())


def _places(indices: Sequence[int]) -> str:
    first = ", ".join(map(str, indices[:_LISTED]))
    more = len(indices) - _LISTED
    return f"message {first}" + (f" and {more} more" if more > 0 else "")


class NodeRef(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One completion of a rollout: a choice of a call."""

    call_id: str
    choice: int = 0

    def __str__(self) -> str:
        return self.call_id if self.choice == 0 else f"{self.call_id}.{self.choice}"


class LiteralSpecials(enum.StrEnum):
    """What becomes of a client's text that spells a control token."""

    AS_ENGINE = "as_engine"
    """That token, as on the engine's own chat route."""
    AS_TEXT = "as_text"
    """Its characters: only the template can write a control token."""


class Head(msgspec.Struct, frozen=True):
    """Everything that decides how a prompt is rendered before its first turn."""

    fingerprint: str
    """sha256 over all that follows and the leading system text."""
    model: str
    tokenizer_sha256: str
    vocab_size: int
    chat_template_sha256: str
    template_kwargs: JsonText
    tools: tuple[JsonText, ...]
    """Tool declarations, in the client's order."""
    literal_specials: LiteralSpecials = LiteralSpecials.AS_ENGINE


class BridgeKind(enum.StrEnum):
    """Where the ids between an answer and the next one came from."""

    SENTINEL = "sentinel"
    """From a small synthetic conversation (docs/decisions/0004)."""
    REAL_HISTORY = "real_history"
    """From a render of the client's whole history, of which only the tail was encoded."""
    CONTINUATION = "continuation"
    """None: the answer itself is being continued."""
    WHOLE_RENDER = "whole_render"
    """From a whole render, encoded whole, which begins with all held ids: the retention policy asked for it."""
    PLUGIN = "plugin"
    """From ours, and another package's hand-written bridge gave the same ids (docs/decisions/0017)."""


class Retention(enum.StrEnum):
    """What stays of the past where a template would write it in another way: drop its thinking, mostly."""

    RETAIN = "retain"
    """Everything that was sampled."""
    TOOL_CYCLE = "tool_cycle"
    """Everything until the next user message; then what the template writes, if it drops thinking."""
    TEMPLATE = "template"
    """What the template writes, at every turn."""


class Root(msgspec.Struct, frozen=True, tag="root"):
    """The prompt starts a new tree."""

    reason: RootReason


class Spliced(msgspec.Struct, frozen=True, tag="spliced"):
    """The prompt is all the parent's ids, unchanged, and a bridge."""

    bridge: BridgeKind


class Forked(msgspec.Struct, frozen=True, tag="forked", omit_defaults=True):
    """The history or a setting changed, or a stop token had to be put in another's place."""

    reason: ForkReason
    message_index: int | None = None
    """Index of the first message that is not what it was, in the client's list."""
    char_offset: int | None = None
    was: str = ""
    """A snippet of the held text at that place."""
    now: str = ""
    """A snippet of what the client sent."""


class Rerendered(msgspec.Struct, frozen=True, tag="rerendered", omit_defaults=True):
    """Nothing changed, but no exact bridge exists, so the prompt was rendered in full."""

    reason: RerenderReason
    detail: str = ""


History: TypeAlias = Root | Spliced | Forked | Rerendered


def history_header(history: History) -> str:
    """The value of `x-turnstile-history`: `root`, `spliced`, `forked:REASON` or `rerendered:REASON`."""
    match history:
        case Root():
            return "root"
        case Spliced():
            return "spliced"
        case Forked(reason=reason):
            return f"forked:{reason}"
        case Rerendered(reason=reason):
            return f"rerendered:{reason}"


class Cut(enum.StrEnum):
    """Where an answer ended, if no stop token ended it."""

    NONE = "none"
    """A stop token was sampled."""
    CONTENT = "content"
    REASONING = "reasoning"
    CALL = "call"


class HeldAnswer(msgspec.Struct, frozen=True):
    """A held completion that a request builds on: all that rendering has to know of it."""

    ref: NodeRef
    held_T: IdRun
    """Root to the completion's last id: exactly what the engine was fed and what it sampled."""
    message: Message
    """As handed out."""
    cut: Cut
    history_M: tuple[Message, ...]
    """The messages before it on its path, as the client sent or was handed them."""
    stop_string: str = ""
    """The stop string that ended it: its ids are held, and the message does not show it."""
    counted: Past | None = None
    """What `past` says, if it is known already."""
    sampled_count: int = 0
    """How many of `held_T`, the last ones, were sampled for it; 0 if nobody counted."""

    @property
    def past(self) -> Past:
        """What is asked of all messages up to this one; read off them only if nobody counted before."""
        return self.counted or Past().then((*self.history_M, self.message))


class Replay(msgspec.Struct, frozen=True):
    """An earlier answer that came back behind the held prefix: its own ids may stand there again."""

    index: int
    """In `Match.new_M`."""
    message_index: int
    """In the client's list."""
    ref: NodeRef
    ids_S: IdRun
    """What was sampled."""
    message: Message
    """As handed out."""
    cut: Cut
    stop_string: str = ""


class Match(msgspec.Struct, frozen=True):
    """The deepest held prefix of a request; a snapshot, safe to use off the event loop."""

    parent: HeldAnswer | None
    covered_M: int
    """How many leading messages of the request the parent's path stands for; 0 without a parent."""
    new_M: tuple[Message, ...]
    """The messages behind those, normalised for rendering."""
    departure: Root | Forked | None
    """Why the request is no plain continuation of a leaf; None if it is one."""
    notes: tuple[Note, ...] = ()
    replays: tuple[Replay, ...] = ()
    """Which of `new_M` are answers of the model whose ids are held, in order."""


class Opening(enum.StrEnum):
    """What the model's first token continues."""

    ANSWER = "answer"
    """A fresh assistant message."""
    REASONING = "reasoning"
    """A reasoning block that the generation prompt opened."""
    PREFILL = "prefill"
    """Text of an assistant message that the client began."""


class Prompt(msgspec.Struct, frozen=True):
    """The ids that the engine is to run, and how each came to stand there.

    Shapes: held_T [H], added_A [A]; the engine runs [H + A]; added_segments tile [0, A).
    """

    head: Head
    parent: NodeRef | None
    held_T: IdRun
    """The first H ids of the parent's path, unchanged; H is the whole path except in front of a fork."""
    added_A: IdRun
    added_segments: tuple[Segment, ...]
    history: History
    opening: Opening = Opening.ANSWER
    prefill: str = ""
    """The text of the message being continued, when opening is PREFILL."""
    notes: tuple[Note, ...] = ()
    replayed: tuple[NodeRef, ...] = ()
    """Which completion each `replayed` segment of added_segments was drawn by, in order."""
    media: tuple[Media, ...] = ()
    """The image of each placeholder in the ids, in order, bytes included; one that is shown twice is there twice."""
    placeholder_id: int | None = None
    """The id that stands for an image; None if the model is shown none."""
    read_with: ToolChoice | None = None
    """The engine's own parser is to read the answer, by this choice of the head's tools; None: Turnstile reads it."""

    @property
    def ids_T(self) -> IdRun:
        """Everything that the engine runs, int32[H + A]."""
        return self.held_T + self.added_A

    def __len__(self) -> int:
        return len(self.held_T) + len(self.added_A)


class Free(msgspec.Struct, frozen=True, tag="free"):
    """Any token may be sampled."""


class SchemaConstraint(msgspec.Struct, frozen=True, tag="schema"):
    """The engine may only sample JSON that a schema accepts."""

    schema: JsonText


class GrammarConstraint(msgspec.Struct, frozen=True, tag="grammar", omit_defaults=True):
    """The engine may only sample text of a GBNF grammar (llama.cpp's `grammars/README.md`)."""

    gbnf: str
    not_enforced: tuple[str, ...] = ()
    """Keywords of the client's schemas that the grammar lets pass, sorted."""


Constraint: TypeAlias = Free | SchemaConstraint | GrammarConstraint


class Draw(msgspec.Struct, frozen=True):
    """How to sample one choice. None or empty = the engine's neutral value (no filter, no penalty)."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 = off."""
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    max_tokens: int | None = None
    """None = until a stop or the end of the context."""
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    constraint: Constraint = Free()
    top_logprobs: int = 0
    """Alternatives to report for each token; 0 = none."""
    choice: int = 0
    affinity: str = ""
    """Draws with the same value share a prefix: a hint for engines with caches in slots."""

    @property
    def is_unfiltered(self) -> bool:
        """Whether every sampled token came from softmax(logits / temperature) and nothing else."""
        return (
            (self.top_p, self.top_k, self.min_p) == (1.0, 0, 0.0)
            and (self.presence_penalty, self.frequency_penalty, self.repetition_penalty) == (0.0, 0.0, 1.0)
            and not self.logit_bias
            and isinstance(self.constraint, Free)
        )


class Finish(enum.StrEnum):
    """How sampling ended, derived from the ids."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class LogprobsMode(enum.StrEnum):
    """Which distribution a recorded log-probability belongs to (docs/reference/trajectory.md)."""

    RAW = "raw"
    """The model's own, before temperature and filters."""
    TEMPERATURE = "temperature"
    """That, divided by the temperature."""
    PROCESSED = "processed"
    """The one that was sampled from: temperature, filters, penalties, bias and grammar included."""
    UNKNOWN = "unknown"
    NONE = "none"


class Numbers(msgspec.Struct, frozen=True):
    """How likely some sampled ids were, and what that means; for a call that breaks off before its generation."""

    logprobs_S: LogprobRun
    """One for each id."""
    mode: LogprobsMode
    temperature: float | None
    """The temperature inside the numbers: 1.0 for raw."""


class FinishedItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of an unfinished answer that was whole: all of its reasoning, a stretch of text, or one call."""

    said: Message
    """It alone, as handed out."""
    end_S: int = 0
    """How many of the answer's ids end with it; 0: none of them ends where it does."""


class Delta(msgspec.Struct, frozen=True):
    """Ids that the engine has just sampled, and how likely each was. Ids are final: no later delta changes them."""

    ids_S: IdRun
    logprobs: tuple[TokenLogprob, ...] = ()
    """One a token when the draw asks for alternatives, else empty."""
    numbers: Numbers | None = None
    """What will be recorded of these ids; None: the engine says so at the end only."""
    said: ReplyDelta | None = None
    """What the engine's own parser has read by now and not said before, tool-call ids its own; None: nothing."""


Emit: TypeAlias = Callable[[Delta], Awaitable[None]]


class Generation(msgspec.Struct, frozen=True):
    """One whole completion as the engine gave it.

    Shapes: ids_S and logprobs_S have one entry for each sampled token, the stop token included when it was
    sampled; the deltas emitted before it add up to ids_S.
    """

    ids_S: IdRun
    logprobs_S: LogprobRun | None
    """None: the engine said nothing at all."""
    finish: Finish
    engine_finish_reason: str
    usage: Usage
    logprobs_mode: LogprobsMode
    logprobs_temperature: float | None
    """The temperature inside the recorded numbers: 1.0 for raw."""
    stop_string: str = ""
    engine_request_id: str = ""
    prompt_echo_T: IdRun | None = None
    """The prompt ids that the engine says it ran; None: it cannot say."""
    sampler_echo: JsonText = ""
    """The sampler settings that the engine says it used, as JSON; empty: it did not say."""
    policy_version: int | None = None
    """The weight version that sampled all of it; None: the engine did not say."""
    notes: tuple[Note, ...] = ()
    policy_spans: tuple[PolicySpan, ...] = ()
    """Which weights sampled which of the ids, in the engine's own words; tiles them. Empty: it did not say."""
    expanded: ExpandedIds | None = None
    """The prompt as it was run, images in place of their placeholders; None: it has none, or the engine cannot say."""
    said: ReplyDelta | None = None
    """What the engine's own parser read that no delta has said."""
