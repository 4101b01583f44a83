"""What a template prints between the message before an answer and the answer's body: in a prompt, and in history.

A stored answer stands behind the ids with which its prompt ended. In a render of a history that text ends somewhere
in front of the answer's body: how far in front is measured here in a small conversation, so that no header has to be
searched for in a text that may contain its look-alike.
Source: docs/decisions/0010.
"""

from __future__ import annotations

import itertools
from typing import TypeAlias

import msgspec

from turnstile.conversation import Message, Role, Text, ToolCall
from turnstile.reasons import RerenderReason
from turnstile.templates.render import GenerationPrompt, TemplateFailed
from turnstile.templates.sentinel import Markers, markers_for, split_once, synthetic, texts_of
from turnstile.templates.served import Mode, Refusal, Scene, Served, render

_USER = Message(role=Role.USER, parts=(Text("zq"),))
_EARLIER = Message(role=Role.ASSISTANT, calls=(ToolCall("zqcallidz", "zqtool", '{"zqarg":0}'),))
"""Mistral's template insists on ids of nine letters or digits."""


class Opening(msgspec.Struct, frozen=True):
    """The text behind the body of one message up to what the model is to write, and up to what it wrote."""

    in_prompt: str
    """To the first token that the model samples."""
    in_history: tuple[str, ...]
    """To the answer's body: every way in which the template is seen to print it, longest first."""


_Key: TypeAlias = tuple[Role, Mode, tuple[str, ...]]


class Openings:
    """The openings of one scene, each measured once."""

    def __init__(self, served: Served, scene: Scene) -> None:
        self._served = served
        self._scene = scene
        self._known: dict[_Key, Opening | Refusal] = {}

    def of(self, before: Message, answer: Message, mode: Mode) -> Opening | Refusal:
        """The opening of an answer behind a message.

        Args:
            before: the message in front of the answer; only who speaks counts.
            answer: its calls' names and ids count, where a marker is to stand in their arguments.
            mode: where the marker is to stand.
        """
        calls = answer.calls if mode is Mode.ARGS else ()
        key = (before.role, mode, tuple(call.name for call in calls))
        if key not in self._known:
            self._known[key] = self._measured(*key)
        known = self._known[key]
        if isinstance(known, Refusal):
            return known
        return msgspec.structs.replace(known, in_history=tuple(_with_ids(text, calls) for text in known.in_history))

    def _measured(self, before: Role, mode: Mode, names: tuple[str, ...]) -> Opening | Refusal:
        calls = tuple(ToolCall(_neutral_id(at), name, "{}") for at, name in enumerate(names))
        answer = Message(role=Role.ASSISTANT, calls=calls)
        texts = itertools.chain(texts_of((*self._scene.system_M, answer)), self._scene.tools, (self._scene.kwargs,))
        markers = markers_for(texts)
        past_M = (*self._scene.system_M, *_past(before, markers.body(0)))
        in_prompt = self._behind(past_M, GenerationPrompt.ADD, markers)
        if isinstance(in_prompt, Refusal):
            return in_prompt
        body = synthetic(answer, mode, markers.answer)
        found: list[str] = []
        refused = Refusal(RerenderReason.SENTINEL_LOST, f"the template prints no {mode} of an answer in history")
        for follow_M in _follow(calls):
            behind = self._behind((*past_M, body, *follow_M), GenerationPrompt.OMIT, markers)
            parts = behind if isinstance(behind, Refusal) else split_once(behind, markers.answer, f"the {mode}")
            if isinstance(parts, Refusal):
                refused = parts
            else:
                found.append(parts[0])
        in_history = tuple(sorted(dict.fromkeys(found), key=len, reverse=True))
        return Opening(in_prompt, in_history) if in_history else refused

    def _behind(self, messages: tuple[Message, ...], generation: GenerationPrompt, markers: Markers) -> str | Refusal:
        try:
            text = render(self._served, self._scene, messages, generation)
        except TemplateFailed as failure:
            return Refusal(RerenderReason.TEMPLATE_ERROR, str(failure))
        parts = split_once(text, markers.body(0), "the message before an answer")
        return parts if isinstance(parts, Refusal) else parts[1]


def _past(before: Role, marker: str) -> tuple[Message, ...]:
    """A conversation that ends with a message of this role with a marker as text."""
    last = Message(role=before, parts=(Text(marker),))
    match before:
        case Role.USER:
            return (last,)
        case Role.TOOL:
            return (_USER, _EARLIER, msgspec.structs.replace(last, call_id=_EARLIER.calls[0].call_id))
        case Role.ASSISTANT | Role.SYSTEM:
            return (_USER, last)


def _follow(calls: tuple[ToolCall, ...]) -> tuple[tuple[Message, ...], ...]:
    """What may stand behind an answer: templates that drop thinking look for the last user message."""
    results = tuple(Message(role=Role.TOOL, parts=(Text("zq"),), call_id=call.call_id) for call in calls)
    result = (Message(role=Role.TOOL, parts=(Text("zq"),), call_id=_neutral_id(0)),)
    return (results, (*results, _USER), ()) if calls else ((_USER,), result, ())


def _neutral_id(at: int) -> str:
    return f"zqcall{at:03d}"


def _with_ids(text: str, calls: tuple[ToolCall, ...]) -> str:
    for at, call in enumerate(calls):
        text = text.replace(_neutral_id(at), call.call_id)
    return text
