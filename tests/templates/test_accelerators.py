"""Which engine renders and which encodes."""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec
import pytest

from turnstile.templates.accelerators import Accelerated, accelerated, at_hand
from turnstile.templates.certificate import Certificate, Parity
from turnstile.templates.certify import certify
from turnstile.templates.checks_tokens import Faster
from turnstile.templates.files import ModelFiles
from turnstile.templates.served import Served

pytest.importorskip("fastokens")
pytest.importorskip("minijinja")
pytestmark = pytest.mark.families


@pytest.fixture(scope="module")
def faster(served: Callable[[str], Served], family_files: Callable[[str], ModelFiles]) -> Faster:
    return at_hand(family_files("smollm2"), served("smollm2"))


@pytest.fixture(scope="module")
def certificate(served: Callable[[str], Served], faster: Faster) -> Certificate:
    return certify(served("smollm2"), faster=faster)


def test_what_is_proven_the_same_serves(
    served: Callable[[str], Served], certificate: Certificate, faster: Faster
) -> None:
    model, chosen = accelerated(served("smollm2"), certificate, faster)
    assert chosen == Accelerated("minijinja", "fastokens", ())
    assert (model.tokenizer.sha256, model.template.sha256) == (
        certificate.tokenizer_sha256,
        certificate.template_sha256,
    )


def test_without_a_certificate_the_reference_serves(served: Callable[[str], Served], faster: Faster) -> None:
    reference = served("smollm2")
    model, chosen = accelerated(reference, None, faster)
    assert (model.tokenizer, model.template) == (reference.tokenizer, reference.template)
    assert chosen == Accelerated("jinja2", "tokenizers", ())


def test_what_is_found_different_is_not_used_and_that_is_said(
    served: Callable[[str], Served], certificate: Certificate, faster: Faster
) -> None:
    parities = (
        Parity("fast tokenizer", "different", 524, "from id 3 on in 'a'"),
        Parity("fast template engine", "not run", 0, "the model has two templates"),
    )
    reference = served("smollm2")
    model, chosen = accelerated(reference, msgspec.structs.replace(certificate, parities=parities), faster)
    assert (model.tokenizer, model.template) == (reference.tokenizer, reference.template)
    assert chosen == Accelerated(
        refused=(
            "The fast tokenizer is installed and not used (it differs): from id 3 on in 'a'",
            "The fast template engine is installed and not used (not compared): the model has two templates",
        )
    )


def test_a_certificate_is_about_the_versions_that_were_compared(
    served: Callable[[str], Served], certificate: Certificate, faster: Faster
) -> None:
    assert [each.split()[0] for each in faster.versions] == ["fastokens", "minijinja"]
    assert certificate.key != certify(served("smollm2")).key


def test_what_is_not_installed_is_not_at_hand(
    served: Callable[[str], Served], family_files: Callable[[str], ModelFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    for name in [each for each in sys.modules if each.split(".")[0] in ("fastokens", "minijinja")]:
        monkeypatch.delitem(sys.modules, name)
    assert at_hand(family_files("smollm2"), served("smollm2")) == Faster()
