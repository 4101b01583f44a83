"""Other packages' bridges, held against ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import pytest

from turnstile.templates.certificate import PluginCheck, PluginOutcome
from turnstile.templates.checks_plugins import check_plugins, questions_of
from turnstile.templates.second_opinion import Crossed, Declined, Variant
from turnstile.templates.served import Served
from turnstile.tokens import IdRun

pytestmark = pytest.mark.families


class Scripted(msgspec.Struct, frozen=True):
    """A variant that answers what it is told to."""

    name: str
    answers: dict[Crossed, IdRun]

    def next_prompt(self, crossed: Crossed) -> IdRun | Declined:
        return self.answers.get(crossed, Declined())


class Package(msgspec.Struct, frozen=True):
    """A plug-in with these variants."""

    found: tuple[Variant, ...]
    is_there: bool = True
    name: str = "p"

    def is_installed(self) -> bool:
        return self.is_there

    def variants(self, served: Served) -> Iterable[Variant]:
        return self.found


@pytest.fixture(scope="session")
def ours(served: Callable[[str], Served]) -> dict[Crossed, IdRun]:
    """Our bridges by what is asked."""
    return {each.asked: each.ours_T for each in questions_of(served("qwen3"), "{}")}


def test_every_shape_but_those_that_are_to_be_continued_is_asked(served: Callable[[str], Served]) -> None:
    names = [each.shape for each in questions_of(served("qwen3"), "{}")]
    assert len(names) == 22
    assert not [name for name in names if name.startswith("prefill")]


def test_one_that_gives_ours_or_refuses_agrees(served: Callable[[str], Served], ours: dict[Crossed, IdRun]) -> None:
    half = dict(list(ours.items())[::2])
    (check,) = check_plugins(served("qwen3"), "{}", (Package((Scripted("v", half),)),))
    assert (check.outcome, check.variant, check.different) == (PluginOutcome.AGREES, "v", ())
    assert check.same
    assert check.refused


def test_one_that_gives_other_ids_anywhere_differs_there_and_the_nearest_is_told(
    served: Callable[[str], Served], ours: dict[Crossed, IdRun]
) -> None:
    last = list(ours)[-1]
    near, far = ours | {last: IdRun.of([1])}, dict.fromkeys(ours, IdRun.of([1])) | {last: ours[last]}
    (check,) = check_plugins(served("qwen3"), "{}", (Package((Scripted("far", far), Scripted("near", near))),))
    assert (check.outcome, check.variant) == (PluginOutcome.DIFFERS, "near")
    assert len(check.different) < len(check.same)


@pytest.mark.parametrize(
    ("package", "outcome"),
    [
        (Package((), is_there=False), PluginOutcome.NOT_INSTALLED),
        (Package(()), PluginOutcome.NOT_APPLICABLE),
        (Package((Scripted("v", {}),)), PluginOutcome.NOT_APPLICABLE),
    ],
)
def test_one_that_is_not_there_or_has_nothing_to_say_is_told_apart(
    served: Callable[[str], Served], package: Package, outcome: PluginOutcome
) -> None:
    assert check_plugins(served("qwen3"), "{}", (package,)) == (PluginCheck("p", "", outcome),)
