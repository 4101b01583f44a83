"""Drift of what stands in a store, and of what stands in a trajectory file."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from turnstile.conversation import Message, Role
from turnstile.errors import CallerError
from turnstile.history.forest import Forest, Node
from turnstile.protocols.base import WireRequest
from turnstile.protocols.chat import CHAT
from turnstile.reports.drift import Drift, Told, report
from turnstile.reports.shelf import ModelShelf
from turnstile.templates.render import GenerationPrompt
from turnstile.templates.served import Served
from turnstile.tokens import SegmentKind
from turnstile.trajectory.format import HeadInfo, Rollout, Sequence


def drift_of_forest(forest: Forest, shelf: ModelShelf) -> Drift:
    """Compare every prompt and every sequence of a rollout in a store.

    Raises: StoreError if the store lacks a tokenizer; ValueError if the forest has no rollout.
    """
    if forest.opened is None:
        raise ValueError("the forest has no rollout")
    frozen_at = forest.opened.opened_at

    def with_served(nodes: list[Node], prompts: Iterator[Told]) -> Iterator[tuple[Served, Told]]:
        for node, told in zip(nodes, prompts, strict=True):
            yield shelf.served(forest.heads[node.started.head]), told

    answered = [node for node in forest.nodes if node.parent is not None]
    leaves = [node for node in forest.nodes if not node.children]
    return report(
        forest.opened.rollout_id,
        with_served(answered, (_prompt(node, forest, frozen_at) for node in answered)),
        with_served(leaves, (_sequence(node, forest, frozen_at) for node in leaves)),
    )


def _prompt(node: Node, forest: Forest, frozen_at: datetime) -> Told:
    head = forest.heads[node.started.head]
    path = node.path()[:-1]
    length = node.length - len(node.choice.ids_S)
    return Told(
        where=f"prompt of {node.ref}",
        ids_T=node.held_T.slice(0, length),
        messages=node.history_M,
        tools=head.tools,
        kwargs=head.template_kwargs,
        now=frozen_at,
        generation=GenerationPrompt.ADD,
        sampled=_spans(node.path())[:-1],
        answers=tuple(each.message for each in path),
    )


def _sequence(node: Node, forest: Forest, frozen_at: datetime) -> Told:
    head = forest.heads[node.started.head]
    path = node.path()
    return Told(
        where=f"sequence of {node.ref}",
        ids_T=node.held_T,
        messages=node.messages_M,
        tools=head.tools,
        kwargs=head.template_kwargs,
        now=frozen_at,
        generation=GenerationPrompt.OMIT,
        sampled=_spans(path),
        answers=tuple(each.message for each in path),
    )


def _spans(path: tuple[Node, ...]) -> tuple[tuple[int, int], ...]:
    """[start, end) of each answer's ids on a path; a stop id that was put aside is not on it."""
    spans: list[tuple[int, int]] = []
    for at, node in enumerate(path):
        kept = path[at + 1].started.held_length if at + 1 < len(path) else node.length
        start = node.length - len(node.choice.ids_S)
        spans.append((start, max(start, min(node.length, kept))))
    return tuple(spans)


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
    told = [(served, _told(rollout, at, sequence)) for at, sequence in enumerate(rollout.sequences)]
    return report(rollout.rollout_id, [], told)


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


def _told(rollout: Rollout, at: int, sequence: Sequence) -> Told:
    head = rollout.heads[sequence.head]
    body = {"model": head.model, "messages": [rollout.messages[index] for index in sequence.messages]}
    messages = CHAT.decode(WireRequest(msgspec.json.encode(body), {})).call.messages
    spans: dict[int | None, tuple[int, int]] = {}
    for segment in sequence.segments:
        if segment.kind == SegmentKind.SAMPLED:
            start, _ = spans.get(segment.call, (segment.start, segment.end))
            spans[segment.call] = (start, segment.end)
    spoken = [message for message in messages if message.role is Role.ASSISTANT]
    # Messages that nobody sampled stand in front of the sampled ones in every agent seen; at worst a kind is misnamed.
    answers = [Message(Role.ASSISTANT)] * max(0, len(spans) - len(spoken)) + spoken[len(spoken) - len(spans) :]
    return Told(
        where=f"sequence {sequence.sequence_id or at}",
        ids_T=sequence.token_ids,
        messages=messages,
        tools=_declarations(rollout, head),
        kwargs=msgspec.json.encode(head.template_kwargs).decode(),
        now=rollout.created_at,
        generation=GenerationPrompt.OMIT,
        sampled=tuple(spans.values()),
        answers=tuple(answers[: len(spans)]),
    )
