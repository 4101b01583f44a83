"""`minijinja` beside the reference."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from turnstile.conversation import Message, Role, Text, ToolCall
from turnstile.templates.checks_shapes import NOW
from turnstile.templates.faster_render import KNOWN_TEMPLATES, FastTemplate, NotForIt, fast_renderer, is_installed
from turnstile.templates.render import RenderRequest, Template, TemplateFailed
from turnstile.templates.served import Served

pytest.importorskip("minijinja")
pytestmark = pytest.mark.families

USER = Message(role=Role.USER, parts=(Text("Look."),))
TOOL = '{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}'


def calling(arguments: str) -> RenderRequest:
    call = Message(role=Role.ASSISTANT, calls=(ToolCall("callid001", "f", arguments),))
    result = Message(role=Role.TOOL, parts=(Text("done"),), call_id="callid001")
    return RenderRequest(messages=(USER, call, result), tools=(TOOL,), now=NOW)


@pytest.fixture
def qwen3(served: Callable[[str], Served]) -> Template:
    return served("qwen3").template


def test_the_package_is_found_where_it_is_installed() -> None:
    assert is_installed()


def test_a_template_that_is_not_known_is_not_run() -> None:
    template = Template("{% for i in range(9) %}{% endfor %}", {})
    assert template.sha256 not in KNOWN_TEMPLATES
    assert (
        fast_renderer(template)
        == "minijinja renders only published templates that were compared, and this is none of them"
    )


def test_text_keys_and_letters_of_a_call_are_written_as_by_the_reference(qwen3: Template) -> None:
    render = fast_renderer(qwen3)
    assert not isinstance(render, str)
    request = calling('{"z": 1, "a": [true, null, -3], "é": "<b> & \'x\'"}')
    assert render(request) == qwen3.render(request)
    assert '{"z": 1, "a": [true, null, -3], "é": "<b> & \'x\'"}' in render(request)


@pytest.mark.parametrize("value", ["1.0", "1e-05", "123456789012345678901234567890", "NaN", '"\\u001c"'])
def test_values_that_the_two_write_differently_are_left_to_the_reference(qwen3: Template, value: str) -> None:
    render = fast_renderer(qwen3)
    assert not isinstance(render, str)
    request = calling(f'{{"a": [{value}]}}')
    with pytest.raises(NotForIt, match="more than one way"):
        render(request)
    assert FastTemplate(qwen3, render).render(request) == qwen3.render(request)


def test_blanks_that_are_none_for_rust_are_left_to_the_reference(qwen3: Template) -> None:
    render = fast_renderer(qwen3)
    assert not isinstance(render, str)
    with pytest.raises(NotForIt, match="more than one way"):
        render(RenderRequest(messages=(Message(role=Role.USER, parts=(Text("a\x1c"),)),), now=NOW))


def test_a_template_that_raises_fails_in_the_words_of_the_reference(served: Callable[[str], Served]) -> None:
    gemma = served("gemma3").template
    render = fast_renderer(gemma)
    assert not isinstance(render, str)
    request = RenderRequest(messages=(USER, USER), now=NOW)
    with pytest.raises(TemplateFailed) as ours:
        gemma.render(request)
    with pytest.raises(TemplateFailed) as theirs:
        FastTemplate(gemma, render).render(request)
    assert str(theirs.value) == str(ours.value)


def test_tags_for_training_masks_are_conditions(served: Callable[[str], Served]) -> None:
    training = served("qwen3-training").template
    render = fast_renderer(training)
    assert not isinstance(render, str)
    request = msgspec.structs.replace(calling("{}"), tools=())
    assert render(request) == training.render(request)
