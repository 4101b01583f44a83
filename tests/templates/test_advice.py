"""What people are told about templates."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from turnstile.templates.advice import ENDS, MEANS, Topic, advice, for_training, summary
from turnstile.templates.certificate import Certificate, CertificateClass, refused
from turnstile.templates.certify import certify
from turnstile.templates.served import Served, StopClass

pytestmark = pytest.mark.families


@pytest.fixture(scope="module")
def certificate(served: Callable[[str], Served]) -> Callable[[str], Certificate]:
    return cache(lambda name: certify(served(name)))


def test_each_class_and_each_kind_of_ending_is_said_in_words() -> None:
    assert set(MEANS) == set(CertificateClass)
    assert set(ENDS) == set(StopClass)


@pytest.mark.parametrize(
    ("family_name", "topic", "word"),
    [
        ("smollm2", Topic.LOSS, "The template does not print tools: requests with tools are refused"),
        ("smollm2", Topic.LOSS, "Tool calls are not printed"),
        ("gpt-oss", Topic.LOSS, "A system message behind the first answer is dropped"),
        ("deepseek-v3.1", Topic.LOSS, "in front of everything"),
        ("gpt-oss", Topic.NOTE, "prints the date"),
        ("qwen3", Topic.REWRITE, "drops thinking of earlier turns"),
        ("deepseek-v3", Topic.REWRITE, "leaves out of its history"),
        ("deepseek-v3", Topic.SPLICE, "a tool result in a second tool cycle"),
        ("qwen3.5", Topic.SPLICE, "The template refuses: a system message behind an answer."),
        ("glm4.5", Topic.SPLICE, "Not kept as they are"),
        ("llama3.1", Topic.SPLICE, "nothing proves the ids: calls of two tools"),
        ("gemma4", Topic.SPLICE, "in the order in which the model wrote"),
    ],
)
def test_what_limits_a_run_is_said(
    certificate: Callable[[str], Certificate], family_name: str, topic: Topic, word: str
) -> None:
    assert [each for each in advice(certificate(family_name)) if each.topic is topic and word in each.says]


def test_an_exact_template_that_loses_nothing_needs_no_words_at_start(
    certificate: Callable[[str], Certificate],
) -> None:
    assert summary(certificate("qwen2.5")) == ()


def test_a_start_says_the_class_and_what_is_limited(certificate: Callable[[str], Certificate]) -> None:
    assert summary(certificate("qwen3.5")) == (
        f"Template: partial. {MEANS[CertificateClass.PARTIAL]}",
        "The template refuses: a system message behind an answer.",
    )
    assert summary(refused("No stop token is known")) == (
        f"Template: refused. {MEANS[CertificateClass.REFUSED]} No stop token is known",
    )


def test_a_template_without_tools_is_not_for_training_with_tools(
    certificate: Callable[[str], Certificate],
) -> None:
    assert for_training(certificate("smollm2")).startswith("Not with tools")
    assert for_training(certificate("qwen2.5")).startswith("Nothing to do")
    assert "Do not start a long run" in for_training(refused("No stop token is known"))


def test_an_inferred_stop_token_is_marked(served: Callable[[str], Served]) -> None:
    model = served("qwen3")
    inferred = Served("m", model.tokenizer, model.template, model.facts, model.stop_ids, model.stop_ids)
    assert [each.says for each in advice(certify(inferred)) if "Nobody named `<|im_end|>`" in each.says]
