"""Which package's bridges a server asks to confirm its own, and what it says of that at start."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import pytest

from turnstile.errors import CallerError
from turnstile.server.plugins import plugin_named, with_plugin
from turnstile.templates.certificate import Certificate, refused
from turnstile.templates.certify import certify
from turnstile.templates.checks_plugins import questions_of
from turnstile.templates.facts import serve
from turnstile.templates.files import ModelFiles
from turnstile.templates.second_opinion import Crossed, Declined, Variant
from turnstile.templates.served import Served
from turnstile.tokens import IdRun


class Scripted(msgspec.Struct, frozen=True):
    """A bridge that answers what it is told to."""

    answers: dict[Crossed, IdRun]
    name: str = "v"

    def next_prompt(self, crossed: Crossed) -> IdRun | Declined:
        return self.answers.get(crossed, Declined())


class Package(msgspec.Struct, frozen=True):
    """A plug-in with these variants."""

    found: tuple[Variant, ...] = ()
    is_there: bool = True
    name: str = "p"

    def is_installed(self) -> bool:
        return self.is_there

    def variants(self, served: Served) -> Iterable[Variant]:
        return self.found


@pytest.fixture(scope="module")
def qwen3(family_files: Callable[[str], ModelFiles]) -> Served:
    return serve(family_files("qwen3"), model="m")


@pytest.fixture(scope="module")
def certificate(qwen3: Served) -> Certificate:
    return certify(qwen3)


@pytest.mark.parametrize(
    ("name", "code", "remedy"), [("q", "plugin_unknown", "Give one of p"), ("p", "plugin_missing", "pip install p")]
)
def test_one_that_is_unknown_or_not_installed_is_refused_with_a_remedy(name: str, code: str, remedy: str) -> None:
    with pytest.raises(CallerError) as told:
        plugin_named(name, (Package(is_there=False),))
    assert told.value.code == code
    assert remedy in told.value.remedy


def test_no_name_is_no_plugin_and_a_known_name_is_it() -> None:
    assert plugin_named("") is None
    assert plugin_named("p", (Package(),)) == Package()


@pytest.mark.families
def test_one_that_agrees_is_asked_and_the_operator_is_told_in_how_many_shapes(
    qwen3: Served, certificate: Certificate
) -> None:
    half = {each.asked: each.ours_T for each in list(questions_of(qwen3, "{}"))[::2]}
    asking, notice = with_plugin(qwen3, Package((Scripted(half),)), certificate)
    assert asking.second_opinion is not None
    assert "11 of 22 shapes" in notice


@pytest.mark.families
def test_one_that_differs_or_has_no_bridge_or_is_asked_of_an_uncertified_model_is_not_asked_and_that_is_told(
    qwen3: Served, certificate: Certificate
) -> None:
    ours = {each.asked: each.ours_T for each in questions_of(qwen3, "{}")}
    differing = Package((Scripted(ours | {next(iter(ours)): IdRun.of([1])}),))
    told = [
        with_plugin(qwen3, differing, certificate),
        with_plugin(qwen3, Package(), certificate),
        with_plugin(qwen3, differing, refused("No stop token is known")),
        with_plugin(qwen3, differing, None),
    ]
    assert [asking for asking, _ in told] == [qwen3] * 4
    words = ("other ids than our bridge in user_after_answer", "has no bridge", *("without a certificate",) * 2)
    assert [word in notice for word, (_, notice) in zip(words, told, strict=True)] == [True] * 4
