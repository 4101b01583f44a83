"""The certificate of real templates against the table of the design, and of templates that are broken.

`TURNSTILE_FAMILIES=all` runs all families, whose files are then fetched; without it those that other tests use too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest

from turnstile.errors import CallerError
from turnstile.templates.certificate import Certificate, CertificateClass, ChainOutcome, Verdict
from turnstile.templates.certify import Step, certify
from turnstile.templates.facts import probe
from turnstile.templates.render import Template
from turnstile.templates.served import Served
from turnstile.templates.shapes import SHAPES

pytestmark = pytest.mark.families

EXACT, REWRITES = CertificateClass.EXACT, CertificateClass.EXACT_REWRITES
PARTIAL = CertificateClass.PARTIAL
COLUMNS = ("user_after_answer", "tool_result", "tool_result_think", "user_after_think")
PARALLEL = {"parallel_two_results", "parallel_same_tool"}
TOOL_SHAPES = {shape.name for shape in SHAPES if any(message.call_id for message in (*shape.history_M, *shape.new_M))}


@dataclass(frozen=True)
class Row:
    """What is to be found."""

    certificate_class: CertificateClass
    stable: str
    """Of the four columns; `yes`, the letters that fail, `-` or `n/a`."""
    not_exact: tuple[tuple[str, str], ...] = ()
    stop_class: str = "closed"


def limits(**shapes: str) -> tuple[tuple[str, str], ...]:
    """Verdicts that are not `exact`: the names of shapes, by verdict."""
    return tuple(sorted((shape, verdict) for verdict, names in shapes.items() for shape in names.split()))


PAIR = "parallel_two_results parallel_same_tool"
COUNTS = limits(needs_history="deep_tool")
LATE = limits(refused="system_middle")
ONE_CALL = limits(unproven=PAIR)
PLAIN = "yes yes n/a n/a"

TABLE = {
    "qwen3": Row(REWRITES, "H H yes H"),
    "qwen3.5": Row(PARTIAL, "GH yes yes GH", LATE),
    "llama3.1": Row(PARTIAL, PLAIN, ONE_CALL),
    # Prints a late system message in front of everything.
    "deepseek-v3.1": Row(REWRITES, PLAIN),
    "gpt-oss": Row(PARTIAL, "yes yes yes H", limits(refused=PAIR), "alias"),
    "glm4.5": Row(PARTIAL, "yes yes yes H", LATE, "header_stop"),
    "qwen2.5": Row(EXACT, PLAIN),
    "qwen3-coder": Row(EXACT, PLAIN),
    "hermes3": Row(PARTIAL, "- yes n/a n/a", limits(refused="user_after_answer trunc_no_tools")),
    "kimi-k2": Row(PARTIAL, PLAIN, COUNTS),
    "deepseek-v3": Row(PARTIAL, "gG gG n/a n/a", COUNTS),
    "gemma4": Row(PARTIAL, "yes yes yes H", limits(different="tool_result_with_content")),
    "smollm2": Row(EXACT, PLAIN),
}
MORE = {
    "cohere2": Row(PARTIAL, PLAIN, limits(unproven="deep_tool deep_user", refused="two_users prefill_after_tool")),
    "command-r7b": Row(PARTIAL, "gG yes gG gG", COUNTS),
    "deepseek-r1-distill": Row(PARTIAL, "gG gG n/a n/a", COUNTS),
    "deepseek-v3.2": Row(REWRITES, "gG gG n/a n/a"),
    "deepseek-v4": Row(REWRITES, PLAIN),
    "gemma3": Row(
        PARTIAL,
        "yes - n/a n/a",
        limits(
            unproven="deep_user",
            refused="tool_result tool_result_with_content tool_result_think parallel_two_results parallel_same_tool"
            " result_then_user two_users system_middle tool_text_odd tool_text_unicode tool_text_empty deep_tool"
            " nosys_tool prefill_after_tool tool_image",
        ),
    ),
    "glm4.6": Row(PARTIAL, "yes yes yes H", LATE, "header_stop"),
    "glm4.7-flash": Row(PARTIAL, "gG gG yes GH", LATE, "header_stop"),
    "granite4.0": Row(EXACT, PLAIN),
    "kimi-k2-thinking": Row(PARTIAL, "yes yes yes yes", COUNTS),
    # Drops thinking only behind a finished tool cycle, which the chain finds.
    "kimi-k2.5-fixed-miles": Row(REWRITES, "yes yes yes yes"),
    "kimi-k3": Row(EXACT, "yes yes yes yes"),
    "lfm2.5": Row(REWRITES, "yes yes yes H"),
    "llama3": Row(EXACT, PLAIN),
    "llama3.2": Row(PARTIAL, PLAIN, ONE_CALL),
    "minimax-m2": Row(REWRITES, "gG gG yes GH"),
    "minimax-m2.5-fixed-miles": Row(REWRITES, "gG gG yes GH"),
    "mistral-small-3.2": Row(
        PARTIAL, PLAIN, limits(unproven="result_then_user", refused="two_users system_middle tool_image")
    ),
    "muse-glimmer": Row(EXACT, "yes yes yes yes"),
    "nemotron3-nano": Row(REWRITES, "gG gG yes GH"),
    "nemotron3-super": Row(REWRITES, "gG gG yes GH"),
    "phi3": Row(EXACT, PLAIN),
    "phi3.5": Row(EXACT, PLAIN),
    "qwen2.5-vl": Row(EXACT, PLAIN),
    "qwen3-fixed-miles": Row(REWRITES, "H yes yes H"),
    "qwen3-instruct-2507": Row(EXACT, PLAIN),
    "qwen3-training": Row(EXACT, "yes yes yes yes"),
    "qwen3-vl": Row(EXACT, PLAIN),
    "qwen3.5-fixed-miles": Row(PARTIAL, "GH yes yes GH", LATE),
    "qwen3.5-nothink": Row(PARTIAL, "GH yes gG gGH", LATE),
    "qwen3.6": Row(PARTIAL, "GH yes yes GH", LATE),
    "qwen3.8": Row(PARTIAL, "yes yes yes yes", LATE),
    "qwq-32b": Row(REWRITES, "gG gG n/a n/a"),
    "seed-oss": Row(EXACT, "yes yes yes yes"),
    "smollm3": Row(EXACT, PLAIN),
}
RUN = tuple(TABLE | MORE) if os.environ.get("TURNSTILE_FAMILIES") == "all" else tuple(TABLE)
GROWS_WITH_THINKING = {"kimi-k3", "muse-glimmer", "qwen3-training", "qwen3.8", "seed-oss"}


def row_of(certificate: Certificate) -> Row:
    words = {"stable": "yes", "unknown": "-"}
    found = {each.shape: each for each in certificate.shapes}
    return Row(
        certificate.certificate_class,
        " ".join(words.get(found[name].stability, found[name].stability) for name in COLUMNS),
        tuple(sorted((each.shape, each.verdict) for each in certificate.shapes if each.verdict is not Verdict.EXACT)),
        certificate.stop_class,
    )


@pytest.mark.parametrize("family_name", RUN)
def test_a_certificate_says_what_the_bridge_table_shows(served: Callable[[str], Served], family_name: str) -> None:
    certificate = certify(served(family_name))
    assert row_of(certificate) == (TABLE | MORE)[family_name]
    assert certificate.exit_code == (3 if certificate.certificate_class is PARTIAL else 0)
    grew = {chain.outcome for chain in certificate.chains if chain.thinking} == {ChainOutcome.EXACT}
    assert grew is (family_name in GROWS_WITH_THINKING)
    assert all(not token.problem for token in certificate.stop_tokens)
    assert msgspec.json.decode(msgspec.json.encode(certificate), type=Certificate) == certificate


def test_a_certificate_is_the_same_each_time(served: Callable[[str], Served]) -> None:
    assert certify(served("smollm2")) == certify(served("smollm2"))


def test_progress_is_told_before_each_check_and_can_end_them(served: Callable[[str], Served]) -> None:
    steps: list[Step] = []
    certify(served("smollm2"), show=steps.append)
    assert [step.done for step in steps] == list(range(steps[0].total))

    def enough(step: Step) -> None:
        if step.done == 3:
            raise TimeoutError(step.what)

    with pytest.raises(TimeoutError, match="text and a tool call, then its result"):
        certify(served("smollm2"), show=enough)


def broken(served: Callable[[str], Served], source: str, stop_ids: frozenset[int] | None = None) -> Certificate:
    qwen3 = served("qwen3")
    template = Template(source, {})
    stops = qwen3.stop_ids if stop_ids is None else stop_ids
    return certify(Served("m", qwen3.tokenizer, template, probe(template, qwen3.tokenizer, stops), stops))


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("{{ raise_exception('never') }}", "never"),
        ("{% for message in messages %}{{ message.content }}\n{% endfor %}", "no_terminator"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ ''.__class__.__base__.__subclasses__() }}", "unsafe"),
        ("nothing of it", "sentinel_lost"),
        ("{{ undefined.attribute }}", "undefined"),
        ("{% for message in messages %}{{ message.content * 2 }}<|im_end|>{% endfor %}", "sentinel_repeated"),
    ],
)
def test_a_template_that_cannot_be_spliced_is_refused_in_a_sentence(
    served: Callable[[str], Served], source: str, word: str
) -> None:
    certificate = broken(served, source)
    assert (certificate.certificate_class, certificate.exit_code) == (CertificateClass.REFUSED, 4)
    assert word in certificate.problem


def test_without_a_stop_token_nothing_is_certified(served: Callable[[str], Served]) -> None:
    source = "{% for message in messages %}{{ message.content }}<|im_end|>\n{% endfor %}"
    assert broken(served, source, frozenset()).problem.startswith("no_terminator")


def test_template_arguments_that_are_none_are_the_callers_mistake(served: Callable[[str], Served]) -> None:
    with pytest.raises(CallerError, match="no JSON object"):
        certify(served("smollm2"), "[]")
