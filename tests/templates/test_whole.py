"""Whole conversations as ids."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from turnstile.conversation import Call, Ending, Message, Role, Text, ToolSpec
from turnstile.errors import CallerError
from turnstile.templates.facts import Served, probe
from turnstile.templates.render import Template
from turnstile.templates.whole import Whole, whole
from turnstile.tokens import Segment, SegmentKind

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
USER = Message(role=Role.USER, parts=(Text("Hi"),))
ANSWER = Message(role=Role.ASSISTANT, parts=(Text("Hello"),))


def rendered(model: Served, *messages: Message, ending: Ending = Ending.ANSWER) -> Whole:
    return whole(model, messages, Call("openai.chat", "m", messages, ending=ending), NOW)


def with_template(model: Served, source: str) -> Served:
    template = Template(source, {})
    return Served("m", model.tokenizer, template, probe(template, model.tokenizer, model.stop_ids), model.stop_ids)


@pytest.mark.families
def test_a_conversation_is_prompt_up_to_its_generation_prompt(served: Callable[[str], Served]) -> None:
    model = served("qwen3")
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert rendered(model, USER) == Whole(
        model.tokenizer.encode(text), (Segment(0, 6, SegmentKind.PROMPT), Segment(6, 9, SegmentKind.SCAFFOLD)), text
    )


@pytest.mark.families
def test_endings_that_begin_alike_are_told_apart_by_token(served: Callable[[str], Served]) -> None:
    source = (
        "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>{% else %}<|im_end|>{% endif %}"
    )
    assert rendered(with_template(served("qwen3"), source), USER).segments == (
        Segment(0, 2, SegmentKind.PROMPT),
        Segment(2, 3, SegmentKind.SCAFFOLD),
    )


@pytest.mark.families
def test_a_message_that_cannot_be_left_open_is_refused_by_name(served: Callable[[str], Served]) -> None:
    model = with_template(served("qwen3"), "{% for m in messages %}{{ m.role }}{% endfor %}")
    with pytest.raises(CallerError) as refused:
        rendered(model, USER, ANSWER, ending=Ending.CONTINUE)
    assert (refused.value.code, refused.value.param) == ("render_failed", "messages[1]")


@pytest.mark.families
@pytest.mark.parametrize("at", [0, 1, 4])
def test_the_tool_on_which_the_template_breaks_is_named(served: Callable[[str], Served], at: int) -> None:
    source = (
        "{% for tool in tools or [] %}{{ tool.function.description ~ tool.function.description.strip() }}{% endfor %}"
        "{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    declared = [f'{{"function": {{"name": "f{each}", "description": "does"}}}}' for each in range(5)]
    declared[at] = '{"function": {"name": "bare"}}'
    tools = tuple(ToolSpec(f"f{each}", written) for each, written in enumerate(declared))
    messages = (USER, ANSWER, USER)
    with pytest.raises(CallerError) as refused:
        whole(with_template(served("qwen3"), source), messages, Call("openai.chat", "m", messages, tools=tools), NOW)
    assert (refused.value.code, refused.value.param) == ("render_failed", f"tools[{at}]")
    assert refused.value.remedy.startswith("Declare that tool")


@pytest.mark.families
@pytest.mark.parametrize("at", [0, 1, 5, 8])
def test_the_message_on_which_the_template_breaks_is_named(served: Callable[[str], Served], at: int) -> None:
    source = "{% for m in messages %}{% if m.content == 'bad' %}{{ raise_exception('bad one') }}{% endif %}{% endfor %}"
    messages = [USER, ANSWER] * 4 + [USER]
    messages[at] = Message(role=messages[at].role, parts=(Text("bad"),))
    with pytest.raises(CallerError) as refused:
        rendered(with_template(served("qwen3"), source), *messages)
    assert (refused.value.status, refused.value.code, refused.value.param) == (400, "render_failed", f"messages[{at}]")
    assert refused.value.problem == (
        f"render_failed: The chat template refused the conversation: bad one (at `messages[{at}]`)"
    )
