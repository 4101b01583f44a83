"""What `turnstile certify` says of every family, and how far sixteen turns go (docs/decisions/0004 and 0008).

The families of `SOME` run always; `make bridge-table` runs all.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from turnstile.templates.certificate import CertificateClass, ChainOutcome, Verdict
from turnstile.templates.certify import certify
from turnstile.templates.checks_chain import TURNS, check_chain
from turnstile.templates.served import Served

pytestmark = pytest.mark.families

SOME = (
    "qwen3", "qwen3.5", "llama3.1", "deepseek-v3.1", "gpt-oss", "glm4.5", "qwen2.5", "qwen3-coder", "hermes3",
    "kimi-k2", "deepseek-v3", "gemma4", "smollm2",
)  # fmt: skip
EXACT = frozenset({
    "granite4.0", "kimi-k3", "llama3", "muse-glimmer", "phi3", "phi3.5", "qwen2.5", "qwen2.5-vl", "qwen3-coder",
    "qwen3-instruct-2507", "qwen3-training", "qwen3-vl", "seed-oss", "smollm2", "smollm3",
})  # fmt: skip
"""All shapes exact, and the template never writes the past in another way."""
EXACT_REWRITES = frozenset({
    "deepseek-v3.1", "deepseek-v3.2", "deepseek-v4", "kimi-k2.5-fixed-miles", "lfm2.5", "minimax-m2",
    "minimax-m2.5-fixed-miles", "nemotron3-nano", "nemotron3-super", "qwen3", "qwen3-fixed-miles", "qwq-32b",
})  # fmt: skip
"""All shapes exact; thinking is dropped, or empty thinking comes and goes."""
PARTIAL = {
    "cohere2": {"two_users", "prefill_after_tool", "deep_tool", "deep_user"},
    "command-r7b": {"deep_tool"},
    "deepseek-r1-distill": {"deep_tool"},
    "deepseek-v3": {"deep_tool"},
    "gemma3": {"tool_result", "two_users", "system_middle", "deep_user"},
    "gemma4": {"tool_result_with_content"},
    "glm4.5": {"system_middle"},
    "glm4.6": {"system_middle"},
    "glm4.7-flash": {"system_middle"},
    "gpt-oss": {"parallel_two_results", "parallel_same_tool"},
    "hermes3": {"user_after_answer", "trunc_no_tools"},
    "kimi-k2": {"deep_tool"},
    "kimi-k2-thinking": {"deep_tool"},
    "llama3.1": {"parallel_two_results", "parallel_same_tool"},
    "llama3.2": {"parallel_two_results", "parallel_same_tool"},
    "mistral-small-3.2": {"result_then_user", "two_users", "system_middle"},
    "qwen3.5": {"system_middle"},
    "qwen3.5-fixed-miles": {"system_middle"},
    "qwen3.5-nothink": {"system_middle"},
    "qwen3.6": {"system_middle"},
    "qwen3.8": {"system_middle"},
}
"""By family, shapes that are not plainly exact; there may be more."""
ALL = (*sorted(EXACT), *sorted(EXACT_REWRITES), *PARTIAL)
RUN = ALL if os.environ.get("TURNSTILE_FAMILIES") == "all" else SOME

WHOLE_CHAINS = frozenset({
    "deepseek-v3.1", "deepseek-v4", "gemma4", "glm4.5", "glm4.6", "gpt-oss", "granite4.0", "kimi-k2.5-fixed-miles",
    "kimi-k3", "lfm2.5", "llama3", "llama3.1", "llama3.2", "muse-glimmer", "phi3", "phi3.5", "qwen2.5", "qwen2.5-vl",
    "qwen3", "qwen3-coder", "qwen3-instruct-2507", "qwen3-training", "qwen3-vl", "seed-oss", "smollm2", "smollm3",
    # From the client's whole history, which these templates are known to need.
    "kimi-k2", "kimi-k2-thinking",
})  # fmt: skip
WHOLE_CHAINS_WITH_THINKING = frozenset({"kimi-k3", "muse-glimmer", "qwen3-training", "qwen3.8", "seed-oss"})
REFUSED_CHAINS = frozenset({"gemma3"})
"""Takes no tool's result."""


def test_the_table_has_each_family_once() -> None:
    assert len(ALL) == len(set(ALL)) == 48
    assert set(SOME) | WHOLE_CHAINS | WHOLE_CHAINS_WITH_THINKING | REFUSED_CHAINS <= set(ALL)


@pytest.mark.parametrize("family_name", RUN)
def test_the_class_of_a_family_and_its_exit_code_are_as_measured(
    served: Callable[[str], Served], family_name: str
) -> None:
    certificate = certify(served(family_name))
    if family_name in PARTIAL:
        expected = (CertificateClass.PARTIAL, 3)
    elif family_name in EXACT:
        expected = (CertificateClass.EXACT, 0)
    else:
        expected = (CertificateClass.EXACT_REWRITES, 0)
    assert (certificate.certificate_class, certificate.exit_code) == expected
    limited = {each.shape for each in certificate.shapes if each.verdict is not Verdict.EXACT}
    assert PARTIAL.get(family_name, set()) <= limited
    assert bool(limited) is (family_name in PARTIAL)


@pytest.mark.parametrize("family_name", RUN)
def test_sixteen_turns_without_thinking_are_one_whole_render_where_the_template_allows(
    served: Callable[[str], Served], family_name: str
) -> None:
    chain = check_chain(served(family_name), "{}", "")
    if family_name in WHOLE_CHAINS:
        assert (chain.outcome, chain.turn) == (ChainOutcome.EXACT, TURNS)
    else:
        stopped = ChainOutcome.REFUSED if family_name in REFUSED_CHAINS else ChainOutcome.REWRITES
        assert chain.outcome is stopped
        assert chain.detail


@pytest.mark.parametrize("family_name", RUN)
def test_sixteen_turns_with_thinking_are_one_whole_render_where_the_template_keeps_it(
    served: Callable[[str], Served], family_name: str
) -> None:
    model = served(family_name)
    if not model.facts.form.reasoning_field:
        pytest.skip("the template has no field for thinking")
    chain = check_chain(model, "{}", "I should look.")
    whole = family_name in WHOLE_CHAINS_WITH_THINKING
    assert chain.outcome is (ChainOutcome.EXACT if whole else ChainOutcome.REWRITES)
    assert (chain.turn == TURNS) is whole
