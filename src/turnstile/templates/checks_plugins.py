"""A check of a certificate: do hand-written bridges of other packages give the same ids as ours?

Source: docs/decisions/0017. Both are given the same held ids, those of a whole render of the shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from turnstile.conversation import Ending, JsonText
from turnstile.generation import Cut, HeldAnswer, NodeRef
from turnstile.templates.bridge import Bridge, Crossing, crossed
from turnstile.templates.certificate import PluginCheck, PluginOutcome
from turnstile.templates.checks_shapes import NOW, WholeRender, shape_for, whole_render
from turnstile.templates.plugins.base import Plugin
from turnstile.templates.proofs import Pattern
from turnstile.templates.proving import pattern_of_shape
from turnstile.templates.render import GenerationPrompt, TemplateFailed
from turnstile.templates.second_opinion import Crossed, Declined, SecondOpinion, Variant
from turnstile.templates.served import Scene, Served, render
from turnstile.templates.shapes import SHAPES, Shape
from turnstile.tokens import IdRun, first_difference


class Question(msgspec.Struct, frozen=True):
    """A shape as both are asked, and our answer. Shapes: ours_T [T]."""

    shape: str
    asked: Crossed
    ours_T: IdRun


def check_plugins(served: Served, kwargs: JsonText, plugins: Iterable[Plugin]) -> tuple[PluginCheck, ...]:
    """Each plug-in's bridge that agrees best with ours, over all shapes that both can be asked.

    Shapes with a message to be continued are left out: no plug-in has such a thing.
    """
    questions = tuple(questions_of(served, kwargs))
    return tuple(_check(served, plugin, questions) for plugin in plugins)


def questions_of(served: Served, kwargs: JsonText) -> Iterator[Question]:
    """The shapes for which there is a bridge of ours and a whole render to take held ids from."""
    for shape in SHAPES:
        model = served.for_tools(tuple(tool.declaration for tool in shape.tools))
        fitting = shape_for(model, shape)
        whole = None if shape.ending is Ending.CONTINUE else whole_render(model, fitting, kwargs)
        if isinstance(whole, WholeRender) and (question := _question(model, fitting, whole, kwargs)) is not None:
            yield question


def second_opinion(served: Served, plugin: Plugin, check: PluginCheck, kwargs: JsonText) -> SecondOpinion | None:
    """What a check allows to ask a plug-in while requests are served; None if it allows nothing.

    Only a bridge that differs nowhere is asked, and only about patterns all of whose shapes it gave as we do.
    """
    patterns = _agreed(served, check, kwargs) if check.outcome is PluginOutcome.AGREES else frozenset[Pattern]()
    variants = plugin.variants(served) if patterns else ()
    found = next((variant for variant in variants if variant.name == check.variant), None)
    return None if found is None else SecondOpinion(plugin.name, found, patterns)


def _agreed(served: Served, check: PluginCheck, kwargs: JsonText) -> frozenset[Pattern]:
    shapes: dict[Pattern, set[str]] = {}
    for shape in SHAPES:
        model = served.for_tools(tuple(tool.declaration for tool in shape.tools))
        shapes.setdefault(pattern_of_shape(shape_for(model, shape), kwargs), set()).add(shape.name)
    return frozenset(pattern for pattern, names in shapes.items() if names <= set(check.same))


def _question(served: Served, shape: Shape, whole: WholeRender, kwargs: JsonText) -> Question | None:
    tools = tuple(tool.declaration for tool in shape.tools)
    whole_T = served.tokenizer.encode(whole.text)
    if shape.cut is Cut.NONE and whole.kept_T != len(whole.held_T):
        return None
    held_T = whole_T.slice(0, len(whole_T) - len(whole.expected_A))
    held = HeldAnswer(NodeRef("certificate"), held_T, shape.answer, shape.cut, shape.history_M)
    ours = crossed(Crossing.of(served, held, shape.new_M, shape.call(kwargs), NOW))
    if not isinstance(ours, Bridge):
        return None
    try:
        fed = render(served, Scene((), tools, kwargs, NOW), shape.history_M, GenerationPrompt.ADD)
    except TemplateFailed:
        return None
    at = first_difference(held_T, served.tokenizer.encode(fed))
    fed_T = len(held_T) if at is None else at
    return Question(
        shape.name,
        Crossed(held_T.slice(0, fed_T), held_T.slice(fed_T), shape.new_M, tools),
        held_T.slice(0, ours.kept_T) + ours.added_A,
    )


def _check(served: Served, plugin: Plugin, questions: tuple[Question, ...]) -> PluginCheck:
    if not plugin.is_installed():
        return PluginCheck(plugin.name, "", PluginOutcome.NOT_INSTALLED)
    checked = [_compared(plugin, variant, questions) for variant in plugin.variants(served)]
    fitting = [check for check in checked if check.outcome is not PluginOutcome.NOT_APPLICABLE]
    best = min(fitting, key=lambda check: (len(check.different) - len(check.same), check.variant), default=None)
    return best or PluginCheck(plugin.name, "", PluginOutcome.NOT_APPLICABLE)


def _compared(plugin: Plugin, variant: Variant, questions: tuple[Question, ...]) -> PluginCheck:
    found = {question.shape: variant.next_prompt(question.asked) for question in questions}
    same = tuple(each.shape for each in questions if found[each.shape] == each.ours_T)
    refused = tuple(each.shape for each in questions if isinstance(found[each.shape], Declined))
    different = tuple(each.shape for each in questions if each.shape not in (*same, *refused))
    outcome = PluginOutcome.NOT_APPLICABLE if not same else PluginOutcome.DIFFERS if different else PluginOutcome.AGREES
    return PluginCheck(plugin.name, variant.name, outcome, same, different, refused)
