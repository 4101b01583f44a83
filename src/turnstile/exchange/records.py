"""From the values of a call to the records that the journal keeps of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from turnstile.conversation import Call, Message, Role, TokenLogprob
from turnstile.engines.base import Capabilities
from turnstile.engines.pool import Seat
from turnstile.exchange.checks import Verdict
from turnstile.exchange.images import Shown, shown_messages
from turnstile.exchange.inflight import Flight
from turnstile.exchange.policy_ranges import hull, worth_keeping
from turnstile.exchange.sampling import Drawn
from turnstile.generation import Draw, Generation, GrammarConstraint, Head, Match, Note, Prompt, Root
from turnstile.history.forest import Forest
from turnstile.history.head_parts import changed_parts
from turnstile.journal import CallStarted, SampledChoice
from turnstile.parsing.parser import Parsed
from turnstile.reasons import NoteCode, RootReason


class Planned(msgspec.Struct, frozen=True):
    """All that is known of a call before an engine hears of it."""

    call: Call
    head: Head
    held: Match
    prompt: Prompt
    draw: Draw
    shown: Shown = Shown()
    """The images in the prompt."""


class Sampled(msgspec.Struct, frozen=True):
    """All that is known of one choice once it was verified and parsed."""

    generation: Generation
    verdict: Verdict
    parsed: Parsed
    logprobs: tuple[TokenLogprob, ...]
    """What a client that asked for log-probabilities is shown."""


def call_started(planned: Planned, forest: Forest, flight: Flight, engine: Capabilities, at: datetime) -> CallStarted:
    """The record of a planned call: what it adds to the forest, never what the forest has."""
    call, held, prompt = planned.call, planned.held, planned.prompt
    assert forest.opened is not None
    return CallStarted(
        rollout_id=forest.opened.rollout_id,
        call_id=flight.call_id,
        started_at=at,
        dialect=call.dialect,
        head=planned.head.fingerprint,
        new_head=None if planned.head.fingerprint in forest.heads else planned.head,
        engine=engine.engine,
        engine_version=engine.version,
        parent=prompt.parent,
        held_length=len(prompt.held_T),
        added_A=prompt.added_A,
        added_segments=prompt.added_segments,
        prompt_sha256=forest.prompt_sha256(prompt.parent, prompt.held_T, prompt.added_A),
        history=prompt.history,
        covered_M=held.covered_M if prompt.parent else 0,
        new_M=held.new_M if prompt.parent else shown_messages(held),
        sampling=call.sampling,
        draw=planned.draw,
        body_digest=flight.digest,
        idempotency_key=call.retry.idempotency_key,
        agent_name=call.agent_name,
        instructions_M=call.thread.instructions_M,
        storage=call.thread.storage,
        notes=(*_noticed(planned), *_head_note(planned, forest), *held.notes, *prompt.notes),
        replayed=prompt.replayed,
        echoed=_echoed(planned) if prompt.parent else None,
        tool_choice=call.tool_choice,
        ending=call.ending,
        kind=call.kind,
        purpose=call.purpose,
        parent_agent=call.parent_agent,
        images=planned.shown.added,
        placeholder_id=prompt.placeholder_id,
    )


def seated(started: CallStarted, seat: Seat) -> CallStarted:
    """The record with where the call goes, and why that is another place than before."""
    moved = (Note(NoteCode.ENGINE_MOVED, f"{seat.left} -> {seat.name}: {seat.why}"),) if seat.left else ()
    return msgspec.structs.replace(started, engine_name=seat.name, notes=(*moved, *started.notes))


def _echoed(planned: Planned) -> Message | None:
    """The parent's answer as the client sent it, if that is one message and another than was handed out."""
    call, held = planned.call, planned.held
    if held.parent is None or not held.covered_M:
        return None
    handed_out = held.parent.message
    sent = msgspec.structs.replace(call.messages[held.covered_M - 1], answer_id=handed_out.answer_id)
    is_one = sent.role is Role.ASSISTANT and len(sent.calls) == len(handed_out.calls)
    return sent if is_one and sent != handed_out else None


def _head_note(planned: Planned, forest: Forest) -> Iterator[Note]:
    """What of the head made a root of the call."""
    if planned.prompt.history == Root(RootReason.HEAD_CHANGED):
        yield Note(NoteCode.HEAD_PARTS, ", ".join(changed_parts(forest, planned.head, planned.call.messages)))


def _noticed(planned: Planned) -> Iterator[Note]:
    """What the request held that is not acted on, and what was done about a harness's habits."""
    call, constraint = planned.call, planned.draw.constraint
    if planned.draw.max_tokens != call.sampling.max_tokens:
        asked, sent = call.sampling.max_tokens, planned.draw.max_tokens
        yield Note(NoteCode.MAX_TOKENS_CLAMPED, f"prompt={len(planned.prompt)} max={asked} sent={sent}")
    for name in call.quirks:
        yield Note(NoteCode.QUIRK, name)
    if call.unknown_fields:
        yield Note(NoteCode.UNKNOWN_FIELDS, ", ".join(call.unknown_fields))
    if isinstance(constraint, GrammarConstraint) and constraint.not_enforced:
        yield Note(NoteCode.SCHEMA_NOT_ENFORCED, ", ".join(constraint.not_enforced))
    if call.foreign_marks:
        yield Note(NoteCode.REASONING_BLOB_UNKNOWN, ", ".join(call.foreign_marks[:3]))


def sampled_choice(choice: int, sampled: Sampled, drawn: Drawn) -> SampledChoice:
    """The record of one completion.

    Args:
        choice: its place among the call's choices.
        sampled: what came of it.
        drawn: how it came about.
    """
    generation, parsed = sampled.generation, sampled.parsed
    policy_min, policy_max = hull(drawn.tiles)
    return SampledChoice(
        choice=choice,
        ids_S=generation.ids_S,
        logprobs_S=generation.logprobs_S,
        message=parsed.message,
        reply_finish=parsed.finish,
        finish=sampled.verdict.finish,
        engine_finish_reason=generation.engine_finish_reason,
        usage=generation.usage,
        logprobs_mode=generation.logprobs_mode,
        logprobs_temperature=generation.logprobs_temperature,
        cut=parsed.cut,
        stop_string=parsed.stop_string,
        engine_request_id=generation.engine_request_id,
        sampler_echo=generation.sampler_echo,
        policy_min=policy_min,
        policy_max=policy_max,
        incomplete=sampled.verdict.incomplete,
        placeholders_S=sampled.verdict.placeholders_S,
        image_runs=sampled.verdict.image_runs,
        notes=(*generation.notes, *drawn.notes, *sampled.verdict.notes, *parsed.notes),
        policy_ranges=worth_keeping(drawn.tiles),
        engine_calls=drawn.engine_calls,
    )
