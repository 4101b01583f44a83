"""Certifies a template with its tokenizer: all checks, no model and no engine.

Source: docs/decisions/0008.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from turnstile.conversation import JsonText
from turnstile.templates.certificate import (
    VERSION,
    Certificate,
    Chain,
    Repeat,
    ShapeVerdict,
    StopToken,
    Verdict,
    certificate_key,
    class_of,
)
from turnstile.templates.checks_chain import check_chain
from turnstile.templates.checks_multi import check_multi
from turnstile.templates.checks_shapes import check_repeats, check_shape, probe_texts, shapes_of
from turnstile.templates.checks_text import check_fates, check_order, check_renders
from turnstile.templates.checks_tokens import (
    EngineTokenize,
    Faster,
    blank_eaters,
    check_engine,
    check_faster,
    check_stop_tokens,
    normalised,
)
from turnstile.templates.served import Served

_THINKING = "The next file may say more."
_OTHER_STEPS = 3


class Step(msgspec.Struct, frozen=True):
    """How far the checks are."""

    done: int
    total: int
    what: str
    """What comes next."""


ShowStep: TypeAlias = Callable[[Step], None]
"""Told before each check. An error that it raises ends the checks: the way to bound their time."""


def show_nothing(_: Step) -> None:
    """For whoever does not watch."""


def certify(
    served: Served,
    kwargs: JsonText = "{}",
    show: ShowStep = show_nothing,
    faster: Faster = Faster(),  # noqa: B008 - it cannot change
    tokenize: EngineTokenize | None = None,
) -> Certificate:
    """The certificate of a served model, for one set of template arguments; always the same for the same model.

    Args:
        served: tokenizer, template, stop tokens.
        kwargs: template arguments, a JSON object.
        show: told how far the checks are.
        faster: faster engines to compare.
        tokenize: an engine that is up, to compare.

    Raises: CallerError if `kwargs` is no JSON object or sets a variable of ours; what `show` raises.
    """
    stop_tokens = tuple(check_stop_tokens(served))
    spliced = _spliced(served, kwargs, _problem(served, stop_tokens), show)
    form = served.facts.form
    return Certificate(
        version=VERSION,
        key=certificate_key(served, kwargs, faster.versions),
        tokenizer_sha256=served.tokenizer.sha256,
        template_sha256=served.template.sha256,
        kwargs=kwargs,
        certificate_class=class_of(spliced.problem, spliced.shapes, spliced.chains),
        problem=spliced.problem,
        stop_class=served.facts.stop_class,
        stop_tokens=stop_tokens,
        blank_eaters=blank_eaters(served),
        normalised=normalised(served),
        arguments_form=form.arguments.value,
        reasoning_field=form.reasoning_field,
        renders=check_renders(served, kwargs),
        shapes=spliced.shapes,
        repeats=spliced.repeats,
        chains=spliced.chains,
        multi_splices=() if spliced.problem else check_multi(served, kwargs),
        fates=check_fates(served, kwargs, spliced.shapes),
        depends_on=tuple(check_order(served, kwargs)),
        parities=(*check_faster(served, faster, probe_texts(served, kwargs), kwargs), check_engine(served, tokenize)),
    )


class _Spliced(msgspec.Struct, frozen=True):
    """What the checks of splicing found; nothing where there is a problem."""

    problem: str
    shapes: tuple[ShapeVerdict, ...]
    chains: tuple[Chain, ...]
    repeats: tuple[Repeat, ...]


def _spliced(served: Served, kwargs: JsonText, problem: str, show: ShowStep) -> _Spliced:
    shapes = () if problem else tuple(_shapes(served, kwargs, show))
    problem = problem or _no_plain_turn(shapes)
    count = len(shapes_of(served))
    show(Step(count, count + _OTHER_STEPS, "16 turns"))
    chains = () if problem else tuple(check_chain(served, kwargs, thinking) for thinking in _thinking(served))
    show(Step(count + 1, count + _OTHER_STEPS, "other pasts"))
    repeats = () if problem else check_repeats(served, kwargs)
    show(Step(count + 2, count + _OTHER_STEPS, "losses and order"))
    return _Spliced(problem, shapes, chains, repeats)


def _thinking(served: Served) -> tuple[str, ...]:
    return ("", _THINKING) if served.facts.form.reasoning_field else ("",)


def _problem(served: Served, stop_tokens: tuple[StopToken, ...]) -> str:
    if served.facts.problem:
        return served.facts.problem
    if not any(not each.problem for each in stop_tokens):
        found = "; ".join(f"{each.text!r} ({each.id}): {each.problem}" for each in stop_tokens)
        return f"The text of no stop token is that token again: {found}" if found else "No stop token is known"
    return ""


def _shapes(served: Served, kwargs: JsonText, show: ShowStep) -> Iterator[ShapeVerdict]:
    shapes = shapes_of(served)
    for at, shape in enumerate(shapes):
        show(Step(at, len(shapes) + _OTHER_STEPS, shape.says))
        yield check_shape(served, shape, kwargs)


def _no_plain_turn(shapes: tuple[ShapeVerdict, ...]) -> str:
    """Why not even a plain turn can be spliced; empty if one can."""
    plain = [each for each in shapes if each.shape in ("user_after_answer", "user_after_answer_tools")]
    if not plain or any(each.verdict is not Verdict.REFUSED for each in plain):
        return ""
    return plain[0].detail
