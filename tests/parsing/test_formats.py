from __future__ import annotations

import pytest

from turnstile.errors import CallerError
from turnstile.parsing.formats import THINK, AnswerFormat, by_name, detect, tool_call_format
from turnstile.parsing.toolcalls import FORMATS

KNOWN = {
    "qwen3": AnswerFormat(THINK, "hermes"),
    "qwen2.5": AnswerFormat(None, "hermes"),
    "hermes3": AnswerFormat(None, "hermes"),
    "qwen3-coder": AnswerFormat(None, "qwen3_coder"),
    "qwen3.5": AnswerFormat(THINK, "qwen3_coder"),
    "llama3.1": AnswerFormat(None, "llama3_json"),
    "llama3.2": AnswerFormat(None, "llama3_json"),
    "llama3": AnswerFormat(None, "none"),
    "glm4.5": AnswerFormat(THINK, "none"),
    "gpt-oss": AnswerFormat(None, "none"),
    "deepseek-v3.1": AnswerFormat(THINK, "none"),
    "smollm2": AnswerFormat(None, "none"),
}


@pytest.mark.families
@pytest.mark.parametrize("name", KNOWN)
def test_a_familys_format_is_found_in_its_template(family, name):
    template = (family(name) / "chat_template.jinja").read_text(encoding="utf-8")
    assert detect(template) == KNOWN[name]


def test_a_format_may_be_named():
    assert by_name("hermes") == AnswerFormat(THINK, "hermes")
    assert by_name("none", None) == AnswerFormat(None, "none")
    assert [tool_call_format(known.name) for known in FORMATS] == list(FORMATS)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(CallerError) as refused:
        by_name("mistral")
    assert str(refused.value) == (
        "There is no tool-call format `mistral`. "
        "Use one of `hermes`, `qwen3_coder`, `llama3_json`, `engine`, or `none`."
    )
