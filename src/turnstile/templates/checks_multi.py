"""The check of a certificate that stored ids can be put back into a rewritten history.

A conversation is grown by bridges alone, as live calls grow it. Then the same messages come as one rewritten history,
once from the first message on and once behind an answer that is still held: the ids must be the same. Where the ids
of bridges are those of one whole render (check 9), so are these.
Source: docs/decisions/0010.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from turnstile.conversation import Call, JsonText, Message, Role, ToolSpec
from turnstile.errors import CallerError
from turnstile.generation import Cut, HeldAnswer, Match, NodeRef, Replay
from turnstile.reasons import RerenderReason
from turnstile.templates.bridge import bridge
from turnstile.templates.certificate import MultiSpliceCheck, Verdict
from turnstile.templates.checks_shapes import NOW
from turnstile.templates.multisplice import multi_splice
from turnstile.templates.served import Refusal, Served
from turnstile.templates.shapes import PAST, TOOLS, calling, resulting, said
from turnstile.templates.whole import whole
from turnstile.tokens import NO_IDS, IdRun

_DECLARATIONS = tuple(tool.declaration for tool in TOOLS)
_Turns: TypeAlias = tuple[tuple[Message, Message], ...]
_HELD_TURNS = 2
"""How many turns are still held, the second time."""
_PLAIN = (
    (said(Role.ASSISTANT, "Two files."), said(Role.USER, "Of what size?")),
    (said(Role.ASSISTANT, "Both are small.", reasoning="I recall."), said(Role.USER, "Since when?")),
    (said(Role.ASSISTANT, "Since May."), said(Role.USER, "Is there more?")),
    (said(Role.ASSISTANT, "No.", reasoning="There is not."), said(Role.USER, "Good.")),
)


def check_multi(served: Served, kwargs: JsonText) -> tuple[MultiSpliceCheck, MultiSpliceCheck]:
    """Whether the ids of earlier answers can be put back into a rewritten history, without tools and with them.

    Args:
        served: the model.
        kwargs: template arguments.

    Raises: CallerError if `kwargs` is no JSON object or sets a variable of ours.
    """
    return _without_tools(served, kwargs), _with_tools(served.for_tools(_DECLARATIONS), kwargs)


def puts_back(served: Served, call: Call) -> bool:
    """Whether a rewritten history may be served with stored ids: where the check for such requests is exact.

    Args:
        served: the model, with the template for the call's tools.
        call: the request.
    """
    has_tools = bool(call.tools) or any(message.role is Role.TOOL or message.calls for message in call.messages)
    check = _with_tools if has_tools else _without_tools
    key = f"{check.__name__}:{call.template_kwargs}"
    return served.puts_back(key, lambda: check(served, call.template_kwargs).verdict is Verdict.EXACT)


def _without_tools(served: Served, kwargs: JsonText) -> MultiSpliceCheck:
    return _check(served, kwargs, (), _PLAIN)


def _with_tools(served: Served, kwargs: JsonText) -> MultiSpliceCheck:
    return _check(served, kwargs, TOOLS, _tool_turns(served))


def _tool_turns(served: Served) -> _Turns:
    return (
        _tool_turn(served, "a", ""),
        _tool_turn(served, "b", "I should look."),
        (said(Role.ASSISTANT, "It is empty."), said(Role.USER, "Look again.")),
        _tool_turn(served, "c", "Once more."),
        (said(Role.ASSISTANT, "Still empty.", reasoning="Nothing there."), said(Role.USER, "Good.")),
        _tool_turn(served, "d", ""),
    )


def _tool_turn(served: Served, name: str, thinking: str) -> tuple[Message, Message]:
    prefix = f"multical{name}"[-8:]
    if served.facts.drops_calls:
        return said(Role.ASSISTANT, f"$ cat {name}", reasoning=thinking), resulting(f"line {name}", prefix=prefix)
    answer = calling(("shell", f'{{"command":"cat {name}"}}'), reasoning=thinking, prefix=prefix)
    return answer, resulting(f"line {name}", prefix=prefix)


class _Grown(msgspec.Struct, frozen=True):
    """A conversation that grew by bridges alone. Shapes: prompt_T [T]."""

    prompt_T: IdRun
    answers: tuple[HeldAnswer, ...]


def _check(served: Served, kwargs: JsonText, tools: tuple[ToolSpec, ...], turns: _Turns) -> MultiSpliceCheck:
    messages = (*PAST, *(message for turn in turns for message in turn))
    call = Call("certificate", "", messages, tools=tools, template_kwargs=kwargs)
    grown = _grown(served, call, turns)
    if isinstance(grown, Refusal):
        return MultiSpliceCheck(bool(tools), Verdict.REFUSED, grown.detail)
    parent = grown.answers[_HELD_TURNS - 1]
    covered_M = len(parent.history_M) + 1
    for match in (
        Match(None, 0, messages, None, replays=_replays(served, grown.answers, 0)),
        Match(
            parent,
            covered_M,
            messages[covered_M:],
            None,
            replays=_replays(served, grown.answers[_HELD_TURNS:], covered_M),
        ),
    ):
        verdict, detail = _compared(served, call, match, grown.prompt_T)
        if verdict is not Verdict.EXACT:
            return MultiSpliceCheck(bool(tools), verdict, detail)
    return MultiSpliceCheck(bool(tools), Verdict.EXACT, "")


def _compared(served: Served, call: Call, match: Match, prompt_T: IdRun) -> tuple[Verdict, str]:
    built = multi_splice(served, match, call, NOW)
    if isinstance(built, Refusal):
        return Verdict.REFUSED, built.detail
    if len(built.replayed) < len(match.replays):
        return Verdict.REFUSED, built.left_out
    held_T = NO_IDS if match.parent is None else match.parent.held_T.slice(0, built.bridge.kept_T)
    if held_T + built.bridge.added_A != prompt_T:
        return Verdict.DIFFERENT, "The template writes what stands before an answer in another way later"
    return Verdict.EXACT, ""


def _grown(served: Served, call: Call, turns: _Turns) -> _Grown | Refusal:
    """The ids of the whole conversation, by bridges alone, and what is held behind each answer."""
    try:
        prompt_T = whole(served, PAST, call, NOW).ids_A
    except CallerError as failure:
        return Refusal(RerenderReason.TEMPLATE_ERROR, failure.problem)
    messages: tuple[Message, ...] = PAST
    answers: list[HeldAnswer] = []
    for at, (answer, new) in enumerate(turns):
        held = HeldAnswer(NodeRef("certificate", at), prompt_T + _sampled(served, at), answer, Cut.NONE, messages)
        built = bridge(served, held, (new,), call, NOW)
        if isinstance(built, Refusal):
            return built
        answers.append(held)
        prompt_T = held.held_T.slice(0, built.kept_T) + built.added_A
        messages = (*messages, answer, new)
    return _Grown(prompt_T, tuple(answers))


def _replays(served: Served, answers: Iterable[HeldAnswer], covered_M: int) -> tuple[Replay, ...]:
    replays: list[Replay] = []
    for answer in answers:
        at = len(answer.history_M)
        sampled_S = _sampled(served, answer.ref.choice)
        replays.append(Replay(at - covered_M, at, answer.ref, sampled_S, answer.message, answer.cut))
    return tuple(replays)


def _sampled(served: Served, at: int) -> IdRun:
    """Any ids do: neither way looks at any but the last. All stop tokens take turns, those too that are replaced."""
    stops = sorted(served.stop_ids)
    return served.tokenizer.encode(f"sampled {at}") + IdRun.of([stops[at % len(stops)]])
