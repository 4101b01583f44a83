"""Drift of what stands in a store, and of what stands in a trajectory file."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from turnstile.conversation import Message, Role
from turnstile.errors import CallerError, TurnstileError
from turnstile.generation import Head, history_header
from turnstile.history.forest import Forest, Node
from turnstile.journal import CallStarted
from turnstile.protocols.base import WireRequest
from turnstile.protocols.chat import CHAT
from turnstile.reports.drift import (
    CallDrift,
    Comparer,
    Difference,
    Drift,
    Figures,
    NotCompared,
    Run,
    RunKind,
    call_drift,
    of_run,
    total,
)
from turnstile.reports.drift_cause import Held
from turnstile.reports.shelf import ModelShelf
from turnstile.reports.text_client import Conversation, conversation_of, sampled_spans
from turnstile.templates.served import Served
from turnstile.tokens import NO_IDS, IdRun, SegmentKind
from turnstile.trajectory.chat_shape import shown_parts, without_images
from turnstile.trajectory.format import HeadInfo, Rollout, Sequence
from turnstile.trajectory.shapes import JsonObject
from turnstile.trajectory.spelling import collapsed

Compared: TypeAlias = tuple[Run, Difference | NotCompared | None]


def drift_of_forest(forest: Forest, shelf: ModelShelf) -> Drift:
    """Compare every answered call's prompt and every sequence of a rollout in a store.

    What was rendered with a tokenizer or template that the store lacks is counted and not compared.

    Raises: ValueError if the forest has no rollout.
    """
    if forest.opened is None:
        raise ValueError("the forest has no rollout")
    comparer = Comparer()
    models = {fingerprint: _model(shelf, head) for fingerprint, head in forest.heads.items()}

    def compared(fingerprint: str, run: Run) -> Compared:
        model = models[fingerprint]
        return run, model if isinstance(model, NotCompared) else comparer.difference(model, run)

    runs = itertools.starmap(compared, _runs(forest))
    return msgspec.structs.replace(
        report(forest.opened.rollout_id, runs), attempt=forest.opened.attempt, group_id=forest.opened.group_id
    )


def _model(shelf: ModelShelf, head: Head) -> Served | NotCompared:
    try:
        return shelf.served(head)
    except TurnstileError as missing:
        return NotCompared(str(missing))


def _runs(forest: Forest) -> Iterator[tuple[str, Run]]:
    """Fingerprint of the head and run; prompts in order of their calls, then sequences in order of their last."""
    for state in forest.calls.values():
        if state.committed is not None:
            yield state.started.head, prompt_of_call(forest, state.started, prompt_ids(forest, state.started))
    for node in forest.nodes:
        if not node.children:
            yield node.started.head, _sequence(node, forest)


def report(rollout_id: str, compared: Iterable[Compared]) -> Drift:
    """The report of a rollout, from its runs and what was found in each."""
    figures: list[Figures] = []
    calls: list[CallDrift] = []
    differences: list[Difference] = []
    problems: dict[str, None] = {}
    for run, found in compared:
        figures.append(of_run(run, found))
        if isinstance(found, NotCompared):
            problems[found.why] = None
            continue
        calls += [call_drift(run, found)] if run.kind is RunKind.PROMPT else []
        differences += [found] if found is not None else []
    sums = msgspec.structs.asdict(total(figures))
    return Drift(
        rollout_id=rollout_id,
        problem=" ".join(problems),
        by_call=tuple(calls),
        differences=tuple(differences),
        **sums,
    )


def prompt_ids(forest: Forest, started: CallStarted) -> IdRun:
    """What the engine was asked to go on from; not safe beside a forest that grows in another thread."""
    held_T = NO_IDS if started.parent is None else forest.node(started.parent).held_T.slice(0, started.held_length)
    return held_T + started.added_A


def prompt_of_call(forest: Forest, started: CallStarted, prompt_T: IdRun) -> Run:
    """The prompt of a call, whose ids are given, and what its client said; safe in any thread."""
    parent = None if started.parent is None else forest.node(started.parent)
    kept = started.held_length
    path = () if parent is None else parent.path()
    spans = [(min(start, kept), min(end, kept)) for start, end in sampled_spans(path)]
    put_back = [segment for segment in started.added_segments if segment.kind is SegmentKind.REPLAYED]
    spans += [(kept + segment.start, kept + segment.end) for segment in put_back]
    answers = [*path, *(forest.node(ref) for ref in started.replayed)]
    return Run(
        kind=RunKind.PROMPT,
        call_id=started.call_id,
        said=conversation_of(forest, started),
        held=Held(prompt_T, tuple(spans), tuple(each.message for each in answers)),
        trained=len(path),
        history=history_header(started.history),
    )


def _sequence(node: Node, forest: Forest) -> Run:
    head = forest.heads[node.started.head]
    path = node.path()
    assert forest.opened is not None
    return Run(
        kind=RunKind.SEQUENCE,
        call_id=str(node.ref),
        said=Conversation(node.messages_M, head.tools, head.template_kwargs, forest.opened.opened_at),
        held=Held(node.held_T, sampled_spans(path), tuple(each.message for each in path)),
        trained=len(path),
    )


def drift_of_trajectory(rollout: Rollout, served: Served) -> Drift:
    """Compare every sequence of a rollout in a file, with a tokenizer and template from elsewhere.

    Raises: CallerError if they are not the ones that the rollout was rendered with, or a message of the file cannot
        be read as OpenAI chat.
    """
    for head in rollout.heads:
        tools = _declarations(rollout, head)
        _refuse_others("tokenizer", head.tokenizer_sha256, served.tokenizer.sha256)
        if head.chat_template_sha256 is not None:
            _refuse_others("chat template", head.chat_template_sha256, served.for_tools(tools).template.sha256)
    comparer = Comparer()
    runs = (_run(rollout, at, sequence) for at, sequence in enumerate(rollout.sequences))
    found = report(rollout.rollout_id, ((run, comparer.difference(served, run)) for run in runs))
    answered = {call.call_id for call in rollout.calls if call.sequence is not None}
    return msgspec.structs.replace(found, calls=len(answered), attempt=rollout.attempt, group_id=rollout.group_id)


def _refuse_others(what: str, recorded: str, given: str) -> None:
    if recorded != given:
        raise CallerError(
            f"The {what} given ({given[:12]}) is not the one that the rollout was rendered with ({recorded[:12]})",
            "Name the store instead of the file, or give the very --tokenizer and --template of the run",
            code="model_mismatch",
        )


def _declarations(rollout: Rollout, head: HeadInfo) -> tuple[str, ...]:
    tools = rollout.tools[head.tools] if head.tools is not None else ()
    return tuple(msgspec.json.encode(tool).decode() for tool in tools)


def _run(rollout: Rollout, at: int, sequence: Sequence) -> Run:
    head = rollout.heads[sequence.head]
    messages = _messages(head.model, [rollout.messages[index] for index in sequence.messages])
    bare = collapsed(sequence)
    spans: dict[int | None, tuple[int, int]] = {}
    for segment in sequence.segments:
        if segment.kind == SegmentKind.SAMPLED:
            start, _ = spans.get(segment.call, (bare.index(segment.start), 0))
            spans[segment.call] = (start, bare.index(segment.end))
    spoken = [message for message in messages if message.role is Role.ASSISTANT]
    # Messages that nobody sampled stand in front of the sampled ones in every agent seen; at worst a kind is misnamed.
    answers = [Message(Role.ASSISTANT)] * max(0, len(spans) - len(spoken)) + spoken[len(spoken) - len(spans) :]
    return Run(
        kind=RunKind.SEQUENCE,
        call_id=sequence.sequence_id or str(at),
        said=Conversation(
            messages=messages,
            tools=_declarations(rollout, head),
            kwargs=msgspec.json.encode(head.template_kwargs).decode(),
            now=rollout.created_at,
        ),
        held=Held(bare.ids_T, tuple(spans.values()), tuple(answers[: len(spans)])),
        trained=len(spans),
    )


def _messages(model: str, shaped: list[JsonObject]) -> tuple[Message, ...]:
    """Messages of a file, read as OpenAI chat; their images are known by hash alone. Raises: CallerError."""
    shown = [shown_parts(message) for message in shaped]
    plain = [without_images(message) if parts else message for message, parts in zip(shaped, shown, strict=True)]
    body = msgspec.json.encode({"model": model, "messages": plain})
    read = CHAT.decode(WireRequest(body, {})).call.messages
    return tuple(
        msgspec.structs.replace(message, parts=parts) if parts else message
        for message, parts in zip(read, shown, strict=True)
    )
