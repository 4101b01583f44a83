"""What a certificate means for a run, in sentences: what is spliced, rewritten and lost, and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Iterator

import msgspec

from turnstile.templates.certificate import (
    Certificate,
    CertificateClass,
    Chain,
    ChainOutcome,
    Fate,
    Verdict,
    class_of,
)
from turnstile.templates.served import StopClass
from turnstile.templates.shapes import ALL_SHAPES


class Topic(enum.StrEnum):
    """What a piece of advice is about."""

    SPLICE = "splice"
    """Requests whose ids are not kept, or not as plainly as the others."""
    LOSS = "loss"
    """What a client sends and the model never sees, whoever serves."""
    REWRITE = "rewrite"
    """What the template would write in another way later; splicing prevents it."""
    NOTE = "note"


class Advice(msgspec.Struct, frozen=True):
    """One thing to know."""

    topic: Topic
    says: str
    """One or two sentences."""
    remedy: str
    """What to do; empty: nothing."""


MEANS = {
    CertificateClass.EXACT: "Every request is spliced exactly, and the template itself keeps what it wrote.",
    CertificateClass.EXACT_REWRITES: (
        "Every request is spliced exactly. The template rewrites its own history, so an agent without Turnstile would"
        " train on other ids than it sampled."
    ),
    CertificateClass.PARTIAL: (
        "Some requests, which are named below, are not spliced, cannot be proven exact, or need the whole history."
    ),
    CertificateClass.REFUSED: "Nothing is spliced: every turn is rendered again and becomes a sequence of its own.",
}
"""Each class in a sentence."""

ENDS = {
    StopClass.CLOSED: "The template closes every message with one of them.",
    StopClass.HEADER_STOP: "The template closes no message: the next one's header is the stop token.",
    StopClass.ALIAS: "In history the template writes another token there, which takes the sampled one's place.",
    StopClass.NONE: "The template closes no message with any of them.",
}
"""What a template does with stop tokens."""

_TRAINING = {
    CertificateClass.EXACT: (
        "Nothing to do: one sequence for an agent's whole loop, each sampled token trained where it was sampled."
    ),
    CertificateClass.EXACT_REWRITES: (
        "One sequence for an agent's whole loop, each sampled token trained where it was sampled. Plain engines show"
        " the model a rewritten history: say in the run's notes that Turnstile keeps it, and evaluate the same way."
    ),
    CertificateClass.PARTIAL: (
        "Run it, and keep the agent from the requests above where you can. `x-turnstile-history` and `turnstile drift`"
        " say how often they came."
    ),
    CertificateClass.REFUSED: (
        "Everything is still recorded as it was sampled, but each turn is a sequence of its own: many short sequences,"
        " behind prompts that the template has rewritten. Do not start a long run like this."
    ),
}

_SAYS = {shape.name: shape.says for shape in ALL_SHAPES}
_LOST_TOOLS = "The template does not print tools: requests with tools are refused."
_LOST_CALLS = "Tool calls are not printed: a model cannot see in its history what it called."
_LOST_RESULTS = "Tool results are not printed: a model never sees what a tool answered."


class _Limit(msgspec.Struct, frozen=True):
    """What is said of shapes with one verdict."""

    verdict: Verdict
    renders: bool
    says: str
    remedy: str


_LIMITS = (
    _Limit(
        Verdict.REFUSED,
        renders=False,
        says="The template refuses",
        remedy="Keep the agent from sending these: the call fails, as on any engine",
    ),
    _Limit(
        Verdict.REFUSED,
        renders=True,
        says="Not kept as they are: rendered again, or without the sampled stop token, in a new sequence",
        remedy="Rare requests cost little; where they are many, look for `rerendered` and `forked` in the report",
    ),
    _Limit(
        Verdict.UNPROVEN,
        renders=False,
        says="Spliced although the template refuses the whole conversation, so that nothing proves the ids",
        remedy="Keep the agent from sending these: the model was not trained on them",
    ),
    _Limit(
        Verdict.UNPROVEN,
        renders=True,
        says="Spliced although the template does not print the answer once and with an end; nothing proves the ids",
        remedy="Give the template that the model was published with",
    ),
    _Limit(
        Verdict.DIFFERENT,
        renders=True,
        says="Spliced in the order in which the model wrote; the template's own history has another",
        remedy="Nothing: training sees what sampling saw. Evaluate through Turnstile too",
    ),
    _Limit(
        Verdict.NEEDS_HISTORY,
        renders=True,
        says="Exact, read off the whole history, since the template counts something or opens it only once",
        remedy="Nothing: such a turn costs one render of the history more",
    ),
)


def advice(certificate: Certificate) -> tuple[Advice, ...]:
    """All that is worth knowing, the gravest first."""
    return (
        *_losses(certificate),
        *_splices(certificate),
        *_rewrites(certificate),
        *_notes(certificate),
    )


def summary(certificate: Certificate) -> tuple[str, ...]:
    """The class in a sentence and what is limited or lost, for a server's start and health; empty if all is exact."""
    if certificate.certificate_class is CertificateClass.REFUSED:
        return (f"Template: refused. {MEANS[CertificateClass.REFUSED]} {certificate.problem}",)
    found = advice(certificate)
    grave = [
        *(f"{each.says} {each.remedy}" for each in found if each.topic is Topic.LOSS),
        *(each.says for each in found if each.topic is Topic.SPLICE),
    ]
    if certificate.certificate_class is CertificateClass.EXACT and not grave:
        return ()
    return (f"Template: {certificate.certificate_class}. {MEANS[certificate.certificate_class]}", *grave)


def for_training(certificate: Certificate) -> str:
    """What it means for whoever trains on what is recorded."""
    fates = certificate.fates
    said = _TRAINING[_class_for_training(certificate)]
    if Fate.DROPPED in (fates.tools, fates.tool_calls, fates.tool_results):
        return f"Not with tools: the model does not see all of them. Without tools: {said}"
    return said


def _class_for_training(certificate: Certificate) -> CertificateClass:
    """The class; where all that is limited is that some turns need a render of the history, as if none did."""
    shapes = tuple(
        msgspec.structs.replace(each, verdict=Verdict.EXACT) if each.verdict is Verdict.NEEDS_HISTORY else each
        for each in certificate.shapes
    )
    return class_of(certificate.problem, shapes, certificate.chains)


def _losses(certificate: Certificate) -> Iterator[Advice]:
    fates = certificate.fates
    if fates.tools is Fate.DROPPED:
        yield Advice(Topic.LOSS, _LOST_TOOLS, "Give a template that prints tools with `--template`")
    if fates.tool_results is Fate.DROPPED:
        yield Advice(
            Topic.LOSS, _LOST_RESULTS, "Give a template that prints tools, or have the agent send them as text"
        )
    if fates.tool_calls is Fate.DROPPED:
        yield Advice(
            Topic.LOSS, _LOST_CALLS, "Give a template that prints tools, or have the agent carry calls in text"
        )
    match fates.late_system:
        case Fate.DROPPED:
            yield Advice(
                Topic.LOSS, "A system message behind the first answer is dropped.", "Send reminders as user messages"
            )
        case Fate.MOVED:
            says = (
                "A system message behind the first answer belongs, for this template, in front of everything. There the"
                " ids are held already, so a spliced prompt does not have it."
            )
            yield Advice(Topic.LOSS, says, "Send reminders as user messages")
        case _:
            pass


def _splices(certificate: Certificate) -> Iterator[Advice]:
    if certificate.problem:
        remedy = "Give the template that the model was published with, and its stop tokens with `--stop`"
        yield Advice(Topic.SPLICE, f"Nothing can be spliced: {certificate.problem.rstrip('.')}.", remedy)
    for limit in _LIMITS:
        found = [each for each in certificate.shapes if each.verdict is limit.verdict and each.renders is limit.renders]
        if found:
            requests = "; ".join(_SAYS[each.shape] for each in found)
            yield Advice(Topic.SPLICE, f"{limit.says}: {requests}.", limit.remedy)


def _rewrites(certificate: Certificate) -> Iterator[Advice]:
    letters = set("".join(each.stability for each in certificate.rewritten))
    if certificate.fates.past_thinking is Fate.DROPPED:
        says = "The template drops thinking of earlier turns. Held ids keep it: the model sees more than elsewhere."
        remedy = "Evaluate through Turnstile as well, so that both see the same; or use the template's own switch"
        yield Advice(Topic.REWRITE, says, remedy)
    if letters & set("gG"):
        says = "Answers are opened with text, such as `<think>`, that the template leaves out of its history."
        yield Advice(Topic.REWRITE, says, "")
    if "H" in letters:
        yield Advice(Topic.REWRITE, "An answer is written otherwise once another message follows it.", "")
    if not letters:
        yield from _late_rewrites(certificate.chains)


def _late_rewrites(chains: tuple[Chain, ...]) -> Iterator[Advice]:
    found = next((each for each in chains if each.outcome is ChainOutcome.REWRITES), None)
    if found is not None:
        what = "with thinking" if found.thinking else "without thinking"
        says = f"In a long conversation {what} the template rewrites its history, first at turn {found.turn}."
        yield Advice(Topic.REWRITE, says, "")


def _notes(certificate: Certificate) -> Iterator[Advice]:
    inferred = ", ".join(f"`{each.text}`" for each in certificate.stop_tokens if each.inferred)
    if inferred:
        says = f"Nobody named {inferred} as a stop token; the template's own closings suggest it."
        yield Advice(Topic.NOTE, says, "Confirm with `--stop`, or give the model's `generation_config.json`")
    for each in certificate.stop_tokens:
        if each.problem:
            yield Advice(
                Topic.NOTE, f"Stop token {each.text!r} ({each.id}): {each.problem}.", "Check the tokenizer's files"
            )
    if "clock" in certificate.depends_on:
        yield Advice(Topic.NOTE, "The template prints the date. Turnstile freezes it at the rollout's first call.", "")
    if certificate.fates.list_content in (Fate.DROPPED, Fate.AS_PYTHON, Fate.RAISES):
        says = "The template cannot take content as a list of parts; Turnstile writes text parts as one string."
        yield Advice(Topic.NOTE, says, "")
    for each in certificate.parities:
        match each.outcome:
            case "different":
                says = f"The {each.name} differs from the reference: {each.detail}."
                yield Advice(Topic.NOTE, says, "Nothing: the reference is used")
            case "same" if each.compared:
                yield Advice(Topic.NOTE, f"The {each.name} gives the same in {each.compared} of {each.compared}.", "")
            case "not run" if each.name != "engine":
                says = f"The {each.name} is not used: {each.detail}."
                yield Advice(Topic.NOTE, says, "Nothing: the reference is used")
            case _:
                pass
