"""Checks 1, 2, 3, 10 and 11 of a certificate: what a template takes, what it loses, and what changes its text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import msgspec

from turnstile.conversation import JsonText, Message, Role
from turnstile.templates.certificate import Fate, Fates, Render, ShapeVerdict
from turnstile.templates.checks_shapes import NOW
from turnstile.templates.render import ContentForm, GenerationPrompt, RenderRequest, TemplateFailed
from turnstile.templates.served import Served
from turnstile.templates.shapes import PAST, TOOLS, calling, resulting, said

_WORD = "qxwhandle"
_USER = PAST[-1]
_ASKS = said(Role.USER, _WORD)
_DECLARATIONS = tuple(tool.declaration for tool in TOOLS)
_RENDERS = {
    "a user message": RenderRequest(messages=(_USER,), now=NOW),
    "a system message and a user message": RenderRequest(messages=PAST, now=NOW),
    "tools": RenderRequest(messages=PAST, tools=_DECLARATIONS, now=NOW),
    "no generation prompt": RenderRequest(messages=(_USER,), generation=GenerationPrompt.OMIT, now=NOW),
}


def check_renders(served: Served, kwargs: JsonText) -> tuple[Render, ...]:
    """The plainest conversations."""
    return tuple(Render(name, _problem(served, request, kwargs)) for name, request in _RENDERS.items())


def check_fates(served: Served, kwargs: JsonText, shapes: tuple[ShapeVerdict, ...]) -> Fates:
    """What becomes of what templates are known to lose.

    Args:
        served: the model.
        kwargs: template arguments.
        shapes: the verdicts, which know of the late system message.
    """
    late = next((each for each in shapes if each.shape == "system_middle"), None)
    call = calling(("shell", f'{{"command":"{_WORD}"}}'))
    return Fates(
        late_system=_late_system(served, kwargs, late),
        list_content=_list_content(served, kwargs),
        tools=_tools(served, kwargs),
        tool_calls=_fate(served, kwargs, (*PAST, call, resulting("one.txt"))),
        tool_results=_fate(served, kwargs, (*PAST, calling(("shell", '{"command":"ls"}')), resulting(_WORD))),
        past_thinking=past_thinking(served, kwargs),
    )


def past_thinking(served: Served, kwargs: JsonText) -> Fate:
    """What becomes of the reasoning of an answer before the last user message."""
    thought = said(Role.ASSISTANT, "Two.", reasoning=_WORD)
    has_thinking = bool(served.facts.form.reasoning_field)
    return _fate(served, kwargs, (*PAST, thought, _USER)) if has_thinking else Fate.ABSENT


def check_order(served: Served, kwargs: JsonText) -> Iterator[str]:
    """What changes the text although it says the same."""
    messages = (*PAST, calling(("shell", '{"command":"ls","when":"now"}')), resulting("one.txt"))
    plain = RenderRequest(messages=messages, tools=_DECLARATIONS, now=NOW)
    turned = (*PAST, calling(("shell", '{"when":"now","command":"ls"}')), resulting("one.txt"))
    variants = {
        "clock": msgspec.structs.replace(plain, now=NOW + timedelta(days=400, hours=5)),
        "tool_order": msgspec.structs.replace(plain, tools=_DECLARATIONS[::-1]),
        "tool_key_order": msgspec.structs.replace(plain, tools=tuple(map(_turned, _DECLARATIONS))),
        "argument_key_order": msgspec.structs.replace(plain, messages=turned),
    }
    for name, variant in variants.items():
        if _text(served, variant, kwargs) != _text(served, plain, kwargs):
            yield name


def _turned(declaration: JsonText) -> JsonText:
    """The same declaration with its keys in the opposite order."""
    entry: dict[str, object] = msgspec.json.decode(declaration, type=dict[str, object])
    function = msgspec.convert(entry["function"], dict[str, object])
    return json.dumps({"type": entry["type"], "function": dict(reversed(function.items()))})


def _tools(served: Served, kwargs: JsonText) -> Fate:
    text = _text(served, RenderRequest(messages=PAST, tools=_DECLARATIONS, now=NOW), kwargs)
    if not text:
        return Fate.RAISES
    return Fate.PRINTED if all(tool.name in text for tool in TOOLS) else Fate.DROPPED


def _late_system(served: Served, kwargs: JsonText, verdict: ShapeVerdict | None) -> Fate:
    fate = _fate(served, kwargs, (*PAST, said(Role.ASSISTANT, "Two."), said(Role.SYSTEM, _WORD), _USER))
    is_moved = fate is Fate.PRINTED and verdict is not None and verdict.lost
    return Fate.MOVED if is_moved else fate


def _list_content(served: Served, kwargs: JsonText) -> Fate:
    form = msgspec.structs.replace(served.facts.form, content=ContentForm.PARTS)
    request = RenderRequest(messages=(_ASKS,), kwargs=kwargs, now=NOW, form=form)
    try:
        text = served.template.render(request)
    except TemplateFailed:
        return Fate.RAISES
    if _WORD not in text:
        return Fate.DROPPED
    return Fate.AS_PYTHON if f"'{_WORD}'" in text else Fate.PRINTED


def _fate(served: Served, kwargs: JsonText, messages: tuple[Message, ...]) -> Fate:
    model = served.for_tools(_DECLARATIONS)
    request = RenderRequest(messages=messages, tools=_DECLARATIONS, kwargs=kwargs, now=NOW, form=model.facts.form)
    try:
        return Fate.PRINTED if _WORD in model.template.render(request) else Fate.DROPPED
    except TemplateFailed:
        return Fate.RAISES


def _problem(served: Served, request: RenderRequest, kwargs: JsonText) -> str:
    model = served.for_tools(request.tools)
    try:
        model.template.render(msgspec.structs.replace(request, kwargs=kwargs, form=model.facts.form))
    except TemplateFailed as failure:
        return failure.problem
    return ""


def _text(served: Served, request: RenderRequest, kwargs: JsonText) -> str:
    """The text; empty if the template raises."""
    model = served.for_tools(request.tools)
    try:
        return model.template.render(msgspec.structs.replace(request, kwargs=kwargs, form=model.facts.form))
    except TemplateFailed:
        return ""
