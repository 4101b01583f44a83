"""What the engine is asked to run for one request: held ids, unchanged, and what is new behind them.

Source: docs/decisions/0004. A bridge where one is exact; else the whole history rendered, with the reason.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import datetime

import msgspec

from turnstile.conversation import Call, Ending, JsonText, Message, Role
from turnstile.generation import (
    BridgeKind,
    Cut,
    Forked,
    Head,
    HeldAnswer,
    History,
    LiteralSpecials,
    Match,
    Note,
    Opening,
    Prompt,
    Rerendered,
    Retention,
    Root,
    Spliced,
)
from turnstile.reasons import ForkReason, NoteCode, RootReason
from turnstile.templates.bodies import Printed, printed_texts
from turnstile.templates.bridge import Bridge, control_text_notes
from turnstile.templates.fingerprint import head_of
from turnstile.templates.images import counted, miscount, refuse_miscounted, refuse_unprinted
from turnstile.templates.literals import hidden, literal_notes
from turnstile.templates.multisplice import MultiSplice
from turnstile.templates.proving import proven_bridge, seconded
from turnstile.templates.replaying import notes_on, put_back
from turnstile.templates.retention import is_rewritten, rewritten
from turnstile.templates.served import Refusal, Served, leading_system
from turnstile.templates.whole import whole
from turnstile.tokens import NO_IDS


def plan(served: Served, call: Call, match: Match, now: datetime, retention: Retention = Retention.RETAIN) -> Prompt:
    """The prompt for a call.

    Safe to run in a thread. `ids_T` starts with all the parent's ids, except where `history` is forked because a
    stop token may not stand in history or the template writes the past in another way; without a parent, nothing
    is held.

    Args:
        served: the model.
        call: the request.
        match: what of it is held.
        now: what the template sees as the present; the same for all calls of a rollout.
        retention: what stays of the past where the template would write it in another way.

    Returns: the prompt; its notes are those of planning alone, `match.notes` are not repeated.

    Raises: CallerError `render_failed` if the whole conversation has to be rendered and the template raises, and
        CallerError if tools or template arguments are no JSON objects, or a text has no bytes; CallerError
        `images_not_supported` if the template has no place for an image, and CallerError if a text of the
        conversation would be taken for one.
    """
    served = served.for_tools(_tools(call))
    refuse_unprinted(served, match.parent, match.new_M)
    if served.literal_specials is LiteralSpecials.AS_ENGINE or (marked := hidden(served, call, match)) is None:
        return _planned(served, call, match, now, retention)
    prompt = marked.shown(_planned(marked.served, marked.call, marked.match, now, retention))
    said = match.new_M if prompt.parent is not None else _conversation(match)
    return msgspec.structs.replace(
        prompt,
        head=head_of_call(served, call, _conversation(match)),
        notes=(*prompt.notes, *literal_notes(served, said)),
    )


def _planned(served: Served, call: Call, match: Match, now: datetime, retention: Retention) -> Prompt:
    """The prompt of a request all of whose texts may be encoded as they are."""
    replayed = put_back(served, match, call, now, retention)
    if replayed is not None and not miscount(served, match.parent, replayed.bridge, match.new_M):
        return _put_back(served, call, match, replayed)
    prompt = _as_text(served, call, match, now, retention)
    return msgspec.structs.replace(prompt, notes=(*prompt.notes, *notes_on(match.replays, ())))


def _as_text(served: Served, call: Call, match: Match, now: datetime, retention: Retention) -> Prompt:
    """The prompt with everything behind the parent rendered."""
    held = match.parent
    if held is None:
        return _rendered(served, call, match.new_M, match.departure or Root(RootReason.FIRST_CALL), now)
    if not match.new_M and call.ending is Ending.CONTINUE:
        return _continued(served, call, held, match)
    if is_rewritten(served, held, match.new_M, call, retention):
        return _rewritten(served, call, held, match, now)
    built = counted(served, held, proven_bridge(served, held, match.new_M, call, now), match.new_M)
    if isinstance(built, Refusal):
        history = match.departure or Rerendered(built.reason, built.detail)
        prompt = _rendered(served, call, _conversation(match), history, now)
        note = Note(NoteCode.RERENDERED_HISTORY, f"{built.reason}: {built.detail}")
        return msgspec.structs.replace(prompt, notes=(note, *prompt.notes))
    return _bridged(served, call, held, match, seconded(served, held, match.new_M, call, built))


def _put_back(served: Served, call: Call, match: Match, found: MultiSplice) -> Prompt:
    """The prompt with the ids of earlier answers among what is rendered behind the parent."""
    held = match.parent
    if held is None:
        opening, prefill = _opening(served, call, match.new_M, found.bridge.text)
        prompt = Prompt(
            head=head_of_call(served, call, match.new_M),
            parent=None,
            held_T=NO_IDS,
            added_A=found.bridge.added_A,
            added_segments=found.bridge.segments,
            history=match.departure or Root(RootReason.FIRST_CALL),
            opening=opening,
            prefill=prefill,
            notes=found.bridge.notes,
        )
    else:
        prompt = _bridged(served, call, held, match, found.bridge)
    return msgspec.structs.replace(
        prompt,
        notes=(*prompt.notes, *notes_on(match.replays, found.replayed)),
        replayed=tuple(replay.ref for replay in found.replayed),
    )


def head_of_call(served: Served, call: Call, messages: tuple[Message, ...]) -> Head:
    """The head of a call whose conversation is `messages`."""
    return _head(served, _tools(call), call.template_kwargs, leading_system(messages))


# A rollout asks for the same one twice a call, with all its tools, which an agent may describe in 100,000 characters.
@functools.lru_cache(maxsize=64)
def _head(served: Served, tools: tuple[JsonText, ...], kwargs: JsonText, system_M: tuple[Message, ...]) -> Head:
    return head_of(
        model=served.model,
        tokenizer=served.tokenizer,
        template=served.for_tools(tools).template,
        kwargs=kwargs,
        tools=tools,
        leading_system=system_M,
        literal_specials=served.literal_specials,
    )


def _conversation(match: Match) -> tuple[Message, ...]:
    """All messages of a request, the held ones as they were handed out."""
    held = match.parent
    return match.new_M if held is None else (*held.history_M, held.message, *match.new_M)


def _tools(call: Call) -> tuple[str, ...]:
    return tuple(tool.declaration for tool in call.tools)


def _bridged(served: Served, call: Call, held: HeldAnswer, match: Match, built: Bridge) -> Prompt:
    is_whole = built.kept_T == len(held.held_T)
    history: History = match.departure or (
        Spliced(built.kind) if is_whole else Forked(ForkReason.STOP_MISMATCH, message_index=match.covered_M - 1)
    )
    opening, prefill = _opening(served, call, match.new_M, built.text)
    return Prompt(
        head=head_of_call(served, call, held.history_M),
        parent=held.ref,
        held_T=held.held_T if is_whole else held.held_T.slice(0, built.kept_T),
        added_A=built.added_A,
        added_segments=built.segments,
        history=history,
        opening=opening,
        prefill=prefill,
        notes=built.notes,
    )


def _rewritten(served: Served, call: Call, held: HeldAnswer, match: Match, now: datetime) -> Prompt:
    """What the template writes of the whole conversation, behind the held ids with which it begins."""
    whole_M = _conversation(match)
    found = rewritten(served, held, call, now, whole_M)
    refuse_miscounted(served, whole_M, held.held_T.slice(0, found.kept_T) + found.added_A)
    segments = found.segments
    if found.kept_T == len(held.held_T):
        # A bridge with the same ids knows better what each of them is.
        built = proven_bridge(served, held, match.new_M, call, now)
        if isinstance(built, Bridge) and (built.kept_T, built.added_A) == (found.kept_T, found.added_A):
            segments = built.segments
    opening, prefill = _opening(served, call, whole_M, found.text)
    return Prompt(
        head=head_of_call(served, call, held.history_M),
        parent=held.ref,
        held_T=held.held_T.slice(0, found.kept_T),
        added_A=found.added_A,
        added_segments=segments,
        history=match.departure or found.history,
        opening=opening,
        prefill=prefill,
        notes=(
            *found.notes,
            *_lost_texts(served, whole_M, found.text),
            *control_text_notes(served, match.new_M),
        ),
    )


def _rendered(served: Served, call: Call, messages: tuple[Message, ...], history: History, now: datetime) -> Prompt:
    rendered = whole(served, messages, call, now)
    refuse_miscounted(served, messages, rendered.ids_A)
    opening, prefill = _opening(served, call, messages, rendered.text)
    return Prompt(
        head=head_of_call(served, call, messages),
        parent=None,
        held_T=NO_IDS,
        added_A=rendered.ids_A,
        added_segments=rendered.segments,
        history=history,
        opening=opening,
        prefill=prefill,
        notes=(*_lost_texts(served, messages, rendered.text), *control_text_notes(served, messages)),
    )


def _lost_texts(served: Served, messages: tuple[Message, ...], rendered: str) -> Iterator[Note]:
    """A note for each message whose text the template leaves out of a whole render."""
    printed = Printed(rendered)
    for at, message in enumerate(messages):
        texts = printed_texts(message, served.facts.form)
        if any(text.strip() and not printed.has(text) for text in texts):
            yield Note(NoteCode.CONTENT_LOST, f"message {at} ({message.role})")


def _continued(served: Served, call: Call, held: HeldAnswer, match: Match) -> Prompt:
    """Go on writing an answer that is held: its own ids, without the stop token if it has one."""
    is_open = held.cut is not Cut.NONE
    plain = (
        Spliced(BridgeKind.CONTINUATION) if is_open else Forked(ForkReason.CONTINUED, message_index=match.covered_M - 1)
    )
    reasons = held.cut is Cut.REASONING
    return Prompt(
        head=head_of_call(served, call, held.history_M),
        parent=held.ref,
        held_T=held.held_T if is_open else held.held_T.slice(0, len(held.held_T) - 1),
        added_A=NO_IDS,
        added_segments=(),
        history=match.departure or plain,
        opening=Opening.REASONING if reasons else Opening.PREFILL,
        prefill="" if reasons else held.message.text,
        notes=(Note(NoteCode.STOP_STRING_KEPT, repr(held.stop_string)),) if held.stop_string else (),
    )


def _opening(served: Served, call: Call, messages: tuple[Message, ...], text: str) -> tuple[Opening, str]:
    if call.ending is Ending.CONTINUE and messages and messages[-1].role is Role.ASSISTANT:
        return Opening.PREFILL, messages[-1].text
    ends = {served.facts.reasoning_opener.rstrip(), "<think>"} - {""}
    return (Opening.REASONING, "") if text.rstrip().endswith(tuple(ends)) else (Opening.ANSWER, "")
