"""What stands between the message before an answer and the answer's body."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from turnstile.conversation import Message, Role, Text, ToolCall
from turnstile.templates.facts import probe
from turnstile.templates.openings import Opening, Openings
from turnstile.templates.render import Template
from turnstile.templates.served import Mode, Refusal, Scene, Served
from turnstile.templates.shapes import TOOLS

pytestmark = pytest.mark.families

SCENE = Scene((), tuple(tool.declaration for tool in TOOLS), "{}", datetime(2026, 12, 1, tzinfo=UTC))
USER, RESULT = Message(Role.USER, (Text("u"),)), Message(Role.TOOL, (Text("r"),), call_id="x")
ANSWER = Message(Role.ASSISTANT, (Text("a"),))


def calling(*call_ids: str) -> Message:
    return Message(Role.ASSISTANT, calls=tuple(ToolCall(call_id, "shell", "{}") for call_id in call_ids))


def test_where_history_prints_what_the_prompt_ends_with_both_are_one(served: Callable[[str], Served]) -> None:
    opening = Openings(served("llama3.1"), SCENE).of(USER, ANSWER, Mode.CONTENT)
    header = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    assert opening == Opening(in_prompt=header, in_history=(header,))


def test_of_a_call_history_prints_what_the_model_wrote_in_front_of_the_arguments(
    served: Callable[[str], Served],
) -> None:
    opening = Openings(served("qwen3"), SCENE).of(USER, calling("call00001"), Mode.ARGS)
    header = "<|im_end|>\n<|im_start|>assistant\n"
    wrote = '<tool_call>\n{"name": "shell", "arguments": {"zqarg": "'
    assert opening == Opening(in_prompt=header, in_history=(f"{header}<think>\n\n</think>\n\n{wrote}", header + wrote))


def test_what_a_prompt_opens_and_history_leaves_out_is_seen_on_both_sides(served: Callable[[str], Served]) -> None:
    """Qwen3.5 opens a think block in its prompt, prints it empty in a tool cycle, and leaves it out before that."""
    opening = Openings(served("qwen3.5"), SCENE).of(USER, ANSWER, Mode.CONTENT)
    header = "<|im_end|>\n<|im_start|>assistant\n"
    assert opening == Opening(f"{header}<think>\n", (f"{header}<think>\n\n</think>\n\n", header))


def test_behind_a_tool_result_stands_the_end_of_the_result(served: Callable[[str], Served]) -> None:
    opening = Openings(served("qwen3"), SCENE).of(RESULT, ANSWER, Mode.CONTENT)
    assert isinstance(opening, Opening)
    assert opening.in_prompt == "\n</tool_response><|im_end|>\n<|im_start|>assistant\n"


def test_ids_of_calls_stand_as_the_answer_has_them(served: Callable[[str], Served]) -> None:
    openings = Openings(served("kimi-k2"), SCENE)
    one, other = (openings.of(USER, calling(call_id), Mode.ARGS) for call_id in ("call00001", "call00002"))
    assert isinstance(one, Opening)
    assert isinstance(other, Opening)
    assert [text.replace("call00001", "call00002") for text in one.in_history] == list(other.in_history)


def test_a_template_that_does_not_print_the_message_before_is_refused(served: Callable[[str], Served]) -> None:
    silent = remade(served("smollm2"), "{% if add_generation_prompt %}>{% endif %}")
    found = Openings(silent, SCENE).of(USER, ANSWER, Mode.CONTENT)
    assert isinstance(found, Refusal)
    assert "message before" in found.detail


def test_a_template_that_refuses_the_small_conversation_is_refused(served: Callable[[str], Served]) -> None:
    raising = remade(served("smollm2"), "{{ raise_exception('not today') }}")
    found = Openings(raising, SCENE).of(USER, ANSWER, Mode.CONTENT)
    assert isinstance(found, Refusal)
    assert "not today" in found.detail


def test_a_template_that_leaves_answers_out_is_refused(served: Callable[[str], Served]) -> None:
    forgetful = remade(
        served("smollm2"), "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    assert isinstance(Openings(forgetful, SCENE).of(USER, ANSWER, Mode.CONTENT), Refusal)


@pytest.mark.parametrize("role", [Role.SYSTEM, Role.ASSISTANT])
def test_an_answer_may_stand_behind_any_message(served: Callable[[str], Served], role: Role) -> None:
    opening = Openings(served("smollm2"), SCENE).of(Message(role, (Text("x"),)), ANSWER, Mode.CONTENT)
    header = "<|im_end|>\n<|im_start|>assistant\n"
    assert opening == Opening(header, (header,))


def remade(model: Served, source: str) -> Served:
    template = Template(source, {})
    return Served(
        model.model, model.tokenizer, template, probe(template, model.tokenizer, model.stop_ids), model.stop_ids
    )
