"""The lines of `calls`, and the heads and sampling settings that they point at."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from typing import assert_never, cast

import msgspec
import orjson

from turnstile.generation import (
    Constraint,
    Draw,
    Finish,
    Forked,
    Free,
    GrammarConstraint,
    History,
    LogprobsMode,
    NodeRef,
    Rerendered,
    Root,
    SchemaConstraint,
    Spliced,
)
from turnstile.history.calls import CallState
from turnstile.history.forest import Forest, Node
from turnstile.journal import CallStarted, TurnCommitted
from turnstile.reasons import FailReason, RootReason
from turnstile.tokens import NO_IDS
from turnstile.trajectory.chat_shape import Shelf
from turnstile.trajectory.fates import CallLine, Fates
from turnstile.trajectory.nearest import HeldSequences, Nearest
from turnstile.trajectory.shapes import CallInfo, HeadInfo, JsonObject, SamplingInfo, UsageInfo
from turnstile.trajectory.spelling import Spelling


class CallLines:
    """Writes the lines of one forest, and numbers heads and settings by first use."""

    def __init__(self, forest: Forest, fates: Fates, shelf: Shelf) -> None:
        self._forest = forest
        self._fates = fates
        self._shelf = shelf
        self._heads: dict[tuple[str, str, str], HeadInfo] = {}
        self._head_numbers: dict[tuple[str, str, str], int] = {}
        self._draws: dict[Draw, int] = {}
        self._agent_name = None if forest.opened is None else forest.opened.agent_name
        self.nearest = nearest_held(forest, fates.spelling)
        """By call id: what each forked or rerendered prompt agreed with longest."""

    @property
    def heads(self) -> tuple[HeadInfo, ...]:
        """The heads so far, by index."""
        return tuple(self._heads.values())

    @property
    def samplings(self) -> tuple[SamplingInfo, ...]:
        """The sampling settings so far, by index."""
        return tuple(sampling_info(draw) for draw in self._draws)

    def write(self, line: CallLine) -> CallInfo:
        """One line of `calls`."""
        return self._failed(line) if line.node is None else self._completed(line, line.node)

    def head_number(self, started: CallStarted) -> int:
        """The index of a call's head; a head that another engine version rendered is another one."""
        key = (started.head, started.engine, started.engine_version)
        if key not in self._head_numbers:
            self._head_numbers[key] = len(self._head_numbers)
            self._heads[key] = self._head_info(started)
        return self._head_numbers[key]

    def _failed(self, line: CallLine) -> CallInfo:
        started, failed = line.state.started, line.state.failed
        reason = FailReason.INTERRUPTED if failed is None else failed.reason
        partial_S = NO_IDS if failed is None else failed.partial_S
        nearest = self.nearest.get(started.call_id)
        prompt_tokens, prompt_sha256 = self._prompt(started)
        return CallInfo(
            call_id=line.call_id,
            parent=self._parent(started),
            history=history_word(started.history),
            history_reason=history_reason(started.history),
            fork_at=None if nearest is None else nearest.agrees_T,
            kind="discarded",
            kind_reason=reason.value,
            agent_name=started.agent_name or self._agent_name,
            dialect=started.dialect,
            choice_index=0,
            head=self.head_number(started),
            sampling=self._draws.setdefault(_settings(started.draw), len(self._draws)),
            started_at=started.started_at,
            finished_at=_ended_at(line.state),
            finish=Finish.ERROR.value,
            usage=UsageInfo(prompt_tokens=prompt_tokens, completion_tokens=len(partial_S)),
            prompt_sha256=prompt_sha256,
            completion_sha256=partial_S.sha256(),
            logprobs_mode=LogprobsMode.NONE.value,
            complete=False,
            incomplete_reasons=(reason.value,),
        )

    def _completed(self, line: CallLine, node: Node) -> CallInfo:
        choice = node.choice
        reason = self._fates.discarded.get(node.ref)
        incomplete = self._fates.incomplete_reasons(node)
        planned = self._failed(line)
        # An answer that broke off came without a count; what is known of its prompt stands in for it.
        counted = planned.usage.prompt_tokens if node.is_resumed else choice.usage.prompt_tokens
        return msgspec.structs.replace(
            planned,
            engine_request_id=choice.engine_request_id or None,
            kind=self._kind(node) if reason is None else "discarded",
            kind_reason=(line.state.started.purpose or None) if reason is None else reason.value,
            choice_index=choice.choice,
            sequence=self._fates.owners.get(node.ref),
            finished_at=_ended_at(line.state),
            finish=choice.finish.value,
            engine_finish_reason=choice.engine_finish_reason or None,
            usage=UsageInfo(
                prompt_tokens=counted,
                completion_tokens=choice.usage.completion_tokens,
                cached_tokens=choice.usage.cached_tokens,
            ),
            completion_sha256=choice.ids_S.sha256(),
            logprobs_mode=choice.logprobs_mode.value,
            logprobs_temperature=choice.logprobs_temperature,
            complete=not incomplete,
            incomplete_reasons=tuple(reason.value for reason in incomplete),
        )

    def _kind(self, node: Node) -> str:
        """The word for `kind` of a completion that somebody consumed."""
        return "auxiliary" if self._fates.is_auxiliary(node) else "agent"

    def _prompt(self, started: CallStarted) -> tuple[int, str]:
        """How many ids a call ran, as far as is known, and their hash."""
        if started.placeholder_id is None:
            return started.held_length + len(started.added_A), started.prompt_sha256
        ids_T = self._fates.spelling.prompt(started).ids_T
        return len(ids_T), ids_T.sha256()

    def _parent(self, started: CallStarted) -> int | None:
        """The line of the deepest completion all of whose ids the prompt keeps."""
        node = None if started.parent is None else self._forest.node(started.parent)
        kept = started.held_length
        while node is not None and node.length > kept:
            # What a completion on the way had cut off its own parent is not in this prompt either.
            kept = min(kept, node.started.held_length)
            node = node.parent
        return None if node is None else self._fates.line_of[node.ref]

    def _head_info(self, started: CallStarted) -> HeadInfo:
        head = self._forest.heads[started.head]
        return HeadInfo(
            model=head.model,
            engine=started.engine,
            engine_version=started.engine_version or None,
            tokenizer_sha256=head.tokenizer_sha256,
            vocab_size=head.vocab_size,
            chat_template_sha256=head.chat_template_sha256 or None,
            template_kwargs=cast(JsonObject, orjson.loads(head.template_kwargs)),
            tools=self._shelf.tools(head.tools),
        )


def nearest_held(forest: Forest, spelling: Spelling) -> dict[str, Nearest]:
    """What each forked or rerendered prompt agreed with longest of all that had been sampled when it was planned."""
    states = list(forest.calls.values())
    if all(isinstance(state.started.history, Root | Spliced) for state in states):
        return {}
    held = HeldSequences(lambda node: spelling.path(node).ids_T)
    found: dict[str, Nearest] = {}
    waiting = _by_commit(states)
    due = next(waiting, None)
    for state in states:
        while due is not None and due.finished_at <= state.started.started_at:
            for choice in due.choices:
                held.add(forest.node(NodeRef(due.call_id, choice.choice)))
            due = next(waiting, None)
        if isinstance(state.started.history, Forked | Rerendered):
            nearest = held.nearest(spelling.prompt(state.started).ids_T)
            if nearest is not None:
                found[state.started.call_id] = nearest
    return found


def _by_commit(states: list[CallState]) -> Iterator[TurnCommitted]:
    yield from sorted(
        (state.committed for state in states if state.committed is not None), key=lambda turn: turn.finished_at
    )


def _ended_at(state: CallState) -> datetime | None:
    """When a call ended; not before it began, also where the machine's clock was set back between two processes."""
    began = state.started.started_at
    if state.committed is not None:
        return max(began, state.committed.finished_at)
    return None if state.failed is None else max(began, state.failed.failed_at)


def history_word(history: History) -> str:
    """The word for `history`."""
    match history:
        case Root():
            return "root"
        case Spliced():
            return "spliced"
        case Forked():
            return "forked"
        case Rerendered():
            return "rerendered"
        case _:
            assert_never(history)


def history_reason(history: History) -> str | None:
    """The word for `history_reason`, with the index of the message at fault behind a colon where one is known."""
    match history:
        case Root(reason=RootReason.FIRST_CALL) | Spliced():
            return None
        case Root(reason=reason):
            return reason.value
        case Forked(reason=reason, message_index=index):
            return reason.value if index is None else f"{reason.value}:{index}"
        case Rerendered(reason=reason):
            return reason.value
        case _:
            assert_never(history)


def sampling_info(draw: Draw) -> SamplingInfo:
    """Sampling settings as the format names them."""
    return SamplingInfo(
        temperature=draw.temperature,
        top_p=draw.top_p,
        top_k=draw.top_k or -1,
        min_p=draw.min_p,
        repetition_penalty=draw.repetition_penalty,
        presence_penalty=draw.presence_penalty,
        frequency_penalty=draw.frequency_penalty,
        logit_bias=bool(draw.logit_bias),
        seed=draw.seed,
        max_tokens=draw.max_tokens,
        stop=draw.stop,
        stop_token_ids=tuple(sorted(draw.stop_ids)),
        structured_output=_constraint_hash(draw.constraint),
    )


def _constraint_hash(constraint: Constraint) -> str | None:
    match constraint:
        case Free():
            return None
        case SchemaConstraint(schema=text) | GrammarConstraint(gbnf=text):
            return sha256(text.encode()).hexdigest()
        case _:
            assert_never(constraint)


def _settings(draw: Draw) -> Draw:
    """A draw without what changes from call to call and never what is sampled."""
    return msgspec.structs.replace(draw, choice=0, affinity="", top_logprobs=0)
