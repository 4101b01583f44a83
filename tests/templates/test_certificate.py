"""What follows from verdicts, and what a certificate is filed under."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from turnstile.templates.certificate import (
    Certificate,
    CertificateClass,
    Chain,
    ChainOutcome,
    ShapeVerdict,
    Verdict,
    certificate_key,
    class_of,
    refused,
)
from turnstile.templates.served import Served


def shape(verdict: Verdict = Verdict.EXACT, stability: str = "stable") -> ShapeVerdict:
    return ShapeVerdict("tool_result", verdict, "args", stability, renders=True, lost=False, detail="")


def chain(outcome: ChainOutcome) -> Chain:
    return Chain(thinking=False, outcome=outcome, turn=4, detail="")


EXACT_CHAIN = chain(ChainOutcome.EXACT)


@pytest.mark.parametrize(
    ("problem", "verdict", "one_chain", "expected"),
    [
        ("", shape(), EXACT_CHAIN, CertificateClass.EXACT),
        ("", shape(stability="n/a"), EXACT_CHAIN, CertificateClass.EXACT),
        ("", shape(stability="GH"), EXACT_CHAIN, CertificateClass.EXACT_REWRITES),
        ("", shape(), chain(ChainOutcome.REWRITES), CertificateClass.EXACT_REWRITES),
        ("", shape(), chain(ChainOutcome.DIFFERENT), CertificateClass.PARTIAL),
        ("", shape(), chain(ChainOutcome.REFUSED), CertificateClass.PARTIAL),
        ("", shape(Verdict.NEEDS_HISTORY), EXACT_CHAIN, CertificateClass.PARTIAL),
        ("", shape(Verdict.UNPROVEN), EXACT_CHAIN, CertificateClass.PARTIAL),
        ("", shape(Verdict.DIFFERENT, "H"), EXACT_CHAIN, CertificateClass.PARTIAL),
        ("no stop token", shape(), EXACT_CHAIN, CertificateClass.REFUSED),
    ],
)
def test_the_class_is_the_worst_that_was_found(
    problem: str, verdict: ShapeVerdict, one_chain: Chain, expected: CertificateClass
) -> None:
    assert class_of(problem, (shape(), verdict), (one_chain,)) is expected


def test_each_class_has_its_exit_code() -> None:
    assert [each.exit_code for each in CertificateClass] == [0, 0, 3, 4]


def test_what_cannot_be_read_is_refused_and_survives_json() -> None:
    certificate = refused("tokenizer.json cannot be read")
    assert (certificate.certificate_class, certificate.exit_code) == (CertificateClass.REFUSED, 4)
    assert msgspec.json.decode(msgspec.json.encode(certificate), type=Certificate) == certificate


@pytest.mark.families
def test_a_certificate_is_filed_under_all_that_it_depends_on(served: Callable[[str], Served]) -> None:
    qwen3, coder = served("qwen3"), served("qwen3-coder")
    one_stop_more = Served("m", qwen3.tokenizer, qwen3.template, qwen3.facts, qwen3.stop_ids | {0})
    inferred = Served("m", qwen3.tokenizer, qwen3.template, qwen3.facts, qwen3.stop_ids, qwen3.stop_ids)
    with_tools = Served("m", qwen3.tokenizer, qwen3.template, qwen3.facts, qwen3.stop_ids, with_tools=coder)
    keys = [certificate_key(each) for each in (qwen3, coder, one_stop_more, inferred, with_tools)]
    keys.append(certificate_key(qwen3, '{"enable_thinking":false}'))
    assert len(set(keys)) == len(keys)
    other_name = Served("other", qwen3.tokenizer, qwen3.template, qwen3.facts, qwen3.stop_ids)
    assert certificate_key(other_name) == certificate_key(qwen3)
