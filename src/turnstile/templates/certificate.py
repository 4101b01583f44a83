"""What a certificate says: how exact splicing is for a tokenizer, its template and arguments, and its stop tokens.

Source: docs/decisions/0008. Made by `turnstile.templates.certify`; everything here is data and what follows from it.
"""

from __future__ import annotations

import enum
import hashlib
import json
from typing import assert_never

import msgspec

from turnstile.conversation import JsonText
from turnstile.templates.proofs import Verdict
from turnstile.templates.served import Served, StopClass

VERSION = 3
"""Part of the key: raise it when a check or the splice changes, so that no stale certificate is taken from a cache."""


class CertificateClass(enum.StrEnum):
    """How far live splicing is exact."""

    EXACT = "exact"
    """In every shape, and the template never writes its own past in another way."""
    EXACT_REWRITES = "exact_rewrites"
    """In every shape; the template writes its own past in another way, which splicing prevents."""
    PARTIAL = "partial"
    """In some shapes; the others need the client's history, cannot be proven, or are rendered again."""
    REFUSED = "refused"
    """In none: every turn is rendered again."""

    @property
    def exit_code(self) -> int:
        """What `turnstile certify` ends with."""
        match self:
            case CertificateClass.EXACT | CertificateClass.EXACT_REWRITES:
                return 0
            case CertificateClass.PARTIAL:
                return 3
            case CertificateClass.REFUSED:
                return 4
            case _:
                assert_never(self)


class ShapeVerdict(msgspec.Struct, frozen=True):
    """One shape of request."""

    shape: str
    verdict: Verdict
    mode: str
    """Where the marker stood that the splice is read off: `content` or `args`; empty without a splice."""
    stability: str
    """`stable`; or which renderings the next one does not begin with: `g` the generation prompt against the answer
    as last message, `G` the generation prompt against the answer in history, `H` the answer as last message against
    the answer in history; `n/a` where the shape has no such thing, `unknown` where the template raises."""
    renders: bool
    """The template takes the whole conversation; where it does not, an engine's own chat route fails too."""
    lost: bool
    """Some text of a new message is not in the prompt."""
    detail: str
    """Why it is not exact; empty if it is."""


class Repeat(msgspec.Struct, frozen=True):
    """A shape again, behind another past than its own."""

    shape: str
    past: str
    """`tool_cycle` or `three_answers`."""
    verdict: Verdict


class ChainOutcome(enum.StrEnum):
    """How far ids that only ever grew are one whole render."""

    EXACT = "exact"
    REWRITES = "rewrites"
    """Until the template writes an earlier turn in another way."""
    DIFFERENT = "different"
    REFUSED = "refused"
    """The template raises, or no bridge was found."""


class Chain(msgspec.Struct, frozen=True):
    """Sixteen turns, ids grown by bridges alone, held against one whole render at the end."""

    thinking: bool
    outcome: ChainOutcome
    turn: int
    """The turn, from 1, at which it stopped; 16 if it did not."""
    detail: str


class MultiSpliceCheck(msgspec.Struct, frozen=True):
    """Whether stored ids can be put back into a history that was rewritten."""

    tools: bool
    """In conversations with tools."""
    verdict: Verdict
    """`exact`: the ids are those of a conversation that only grew."""
    detail: str
    """Why it is not exact; empty if it is."""


class StopToken(msgspec.Struct, frozen=True):
    """A token that ends answers."""

    id: int
    text: str
    inferred: bool
    """Nobody named it; the template's own closings suggested it."""
    problem: str
    """Why text cannot find it again; empty if it can."""


class Fate(enum.StrEnum):
    """What a template does with something that a client may send."""

    PRINTED = "printed"
    AS_PYTHON = "as_python"
    """Printed as Python would print the list."""
    DROPPED = "dropped"
    MOVED = "moved"
    """Printed in front of what is held, so that a splice does not have it."""
    RAISES = "raises"
    ABSENT = "absent"
    """The template knows no such thing."""


class Fates(msgspec.Struct, frozen=True):
    """What becomes of what templates are known to lose."""

    late_system: Fate
    """A system message behind the first answer."""
    list_content: Fate
    """Text sent as a list of parts; Turnstile writes it as one string wherever the template takes strings."""
    tools: Fate
    """The declarations that a request offers."""
    tool_calls: Fate
    tool_results: Fate
    past_thinking: Fate
    """The reasoning of an answer before the last user message."""


class Render(msgspec.Struct, frozen=True):
    """One of the plainest renders."""

    name: str
    problem: str
    """Empty if the template takes it."""


class Parity(msgspec.Struct, frozen=True):
    """Whether something else than the reference gives the same texts and ids."""

    name: str
    outcome: str
    """`same`, `different`, `not installed` or `not run`."""
    compared: int
    detail: str


class PluginOutcome(enum.StrEnum):
    """What a comparison with another package's hand-written bridge showed."""

    AGREES = "agrees"
    """Wherever it gives a bridge, it is ours."""
    DIFFERS = "differs"
    """It is written for another revision of the template."""
    NOT_APPLICABLE = "not_applicable"
    """It has no bridge for this family: none fits the vocabulary, or none gives our ids in any shape."""
    NOT_INSTALLED = "not_installed"


class PluginCheck(msgspec.Struct, frozen=True):
    """A package's bridge that comes nearest to ours; shapes by name."""

    plugin: str
    variant: str
    """The package's own name for the family; empty where it has none."""
    outcome: PluginOutcome
    same: tuple[str, ...] = ()
    different: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


class Certificate(msgspec.Struct, frozen=True):
    """All that the checks found."""

    version: int
    key: str
    tokenizer_sha256: str
    template_sha256: str
    kwargs: JsonText
    certificate_class: CertificateClass
    problem: str
    """Why nothing can be spliced; empty if something can."""
    stop_class: StopClass
    stop_tokens: tuple[StopToken, ...]
    blank_eaters: tuple[str, ...]
    """Added tokens that swallow the blanks beside them."""
    normalised: tuple[str, ...]
    """Control tokens that are looked for in the normalised text, so that other texts may become them."""
    arguments_form: str
    """How the template wants a call's arguments: `object` or `string`."""
    reasoning_field: str
    """Empty: it knows none."""
    renders: tuple[Render, ...]
    shapes: tuple[ShapeVerdict, ...]
    repeats: tuple[Repeat, ...]
    chains: tuple[Chain, ...]
    multi_splices: tuple[MultiSpliceCheck, ...]
    """Without tools and with them; empty if nothing can be spliced."""
    fates: Fates
    depends_on: tuple[str, ...]
    """What changes the text without changing what it says: `clock`, `tool_order`, `tool_key_order`,
    `argument_key_order`."""
    parities: tuple[Parity, ...]
    plugins: tuple[PluginCheck, ...] = ()
    """Bridges of other packages against ours; empty if none was asked, or nothing can be spliced."""

    @property
    def exit_code(self) -> int:
        """What `turnstile certify` ends with."""
        return self.certificate_class.exit_code

    def shape(self, name: str) -> ShapeVerdict | None:
        """The verdict on a shape; None if it was not checked."""
        return next((each for each in self.shapes if each.shape == name), None)

    @property
    def rewritten(self) -> tuple[ShapeVerdict, ...]:
        """The shapes in which the template writes its own past in another way."""
        return tuple(each for each in self.shapes if set(each.stability) <= set("gGH"))


def class_of(problem: str, shapes: tuple[ShapeVerdict, ...], chains: tuple[Chain, ...]) -> CertificateClass:
    """The class that the verdicts amount to."""
    if problem:
        return CertificateClass.REFUSED
    outcomes = {chain.outcome for chain in chains}
    if any(each.verdict is not Verdict.EXACT for each in shapes) or not outcomes <= _FAITHFUL:
        return CertificateClass.PARTIAL
    rewrites = any(set(each.stability) <= set("gGH") for each in shapes) or ChainOutcome.REWRITES in outcomes
    return CertificateClass.EXACT_REWRITES if rewrites else CertificateClass.EXACT


_FAITHFUL = frozenset({ChainOutcome.EXACT, ChainOutcome.REWRITES})


def certificate_key(served: Served, kwargs: JsonText = "{}", accelerators: tuple[str, ...] = ()) -> str:
    """The SHA-256 of all that a certificate depends on: tokenizer, templates, template arguments, stop tokens.

    And the names and versions of the accelerators that it compared.
    """
    tools = served.with_tools
    parts = (
        "turnstile certificate",
        VERSION,
        served.tokenizer.sha256,
        served.template.sha256,
        sorted(served.template.special_tokens.items()),
        kwargs,
        sorted(served.stop_ids),
        sorted(served.stop_ids_inferred),
        [tools.template.sha256, sorted(tools.stop_ids)] if tools is not None else [],
        *accelerators,
    )
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def refused(problem: str, kwargs: JsonText = "{}") -> Certificate:
    """The certificate of what cannot even be read."""
    absent = Fates(*([Fate.ABSENT] * 6))
    return Certificate(
        version=VERSION,
        key="",
        tokenizer_sha256="",
        template_sha256="",
        kwargs=kwargs,
        certificate_class=CertificateClass.REFUSED,
        problem=problem,
        stop_class=StopClass.NONE,
        stop_tokens=(),
        blank_eaters=(),
        normalised=(),
        arguments_form="",
        reasoning_field="",
        renders=(),
        shapes=(),
        repeats=(),
        chains=(),
        multi_splices=(),
        fates=absent,
        depends_on=(),
        parities=(),
    )
