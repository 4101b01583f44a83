"""How a held path goes over into what is new."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from turnstile.conversation import Ending, Message, Role, Text, ToolCall
from turnstile.generation import Cut, HeldAnswer, NodeRef
from turnstile.templates.closing import Join, join_to, reasoning_close
from turnstile.templates.facts import Served
from turnstile.templates.sentinel import Markers, Outlook, closing, cut, small_past, tail
from turnstile.templates.served import Closing, Mode, Placed, Refusal, Scene
from turnstile.tokens import NO_IDS, IdRun

SCENE = Scene((), (), "{}", datetime(2026, 12, 1, tzinfo=UTC))
USER = Message(role=Role.USER, parts=(Text("Next?"),))
ANSWER = Message(role=Role.ASSISTANT, parts=(Text("Hello"),))
CALLING = Message(role=Role.ASSISTANT, calls=(ToolCall("callid001", "ls", "{}"),))
RESULT = Message(role=Role.TOOL, parts=(Text("a.txt"),), call_id="callid001")


def join(model: Served, answer: Message, *held: str, ended: Cut = Cut.NONE) -> Join:
    mode, new = (Mode.ARGS, RESULT) if answer.calls else (Mode.CONTENT, USER)
    closed = closing(model, SCENE, answer, mode)
    behind = tail(model, SCENE, small_past(SCENE), Outlook(answer, (new,), Ending.ANSWER, Markers("zqS")), mode)
    assert not isinstance(closed, Refusal)
    assert not isinstance(behind, Refusal)
    boundary = cut(model, closed, behind)
    assert not isinstance(boundary, Refusal)
    ids = IdRun.of(model.tokenizer.id_of(text) or 0 for text in held)
    return join_to(model, SCENE, HeldAnswer(NodeRef("call_1"), ids, answer, ended, (USER,)), boundary, mode)


@pytest.mark.families
@pytest.mark.parametrize(
    ("family_name", "ended", "close"),
    [
        ("qwen3", Cut.CONTENT, "<|im_end|>"),
        ("qwen3", Cut.REASONING, "\n</think>\n\n<|im_end|>"),
        ("qwen3", Cut.CALL, "<|im_end|>"),
        ("qwen3.5", Cut.REASONING, "\n</think>\n\n<|im_end|>"),
        ("llama3.1", Cut.CONTENT, "<|eot_id|>"),
        ("llama3.1", Cut.REASONING, "</think><|eot_id|>"),
        ("gpt-oss", Cut.CONTENT, "<|end|>"),
        ("gpt-oss", Cut.REASONING, "<|end|>"),
        ("gemma4", Cut.REASONING, "\n<channel|><turn|>"),
        ("glm4.5", Cut.CONTENT, ""),
        ("glm4.5", Cut.REASONING, "</think>"),
        ("glm4.5", Cut.CALL, ""),
    ],
)
def test_a_cut_is_closed_as_the_template_would(
    served: Callable[[str], Served], family_name: str, ended: Cut, close: str
) -> None:
    model = served(family_name)
    assert join(model, ANSWER, "a", "b", ended=ended) == Join(2, model.tokenizer.encode(close), 0)


@pytest.mark.families
def test_the_templates_own_stop_is_followed_by_what_is_new(served: Callable[[str], Served]) -> None:
    assert join(served("qwen3"), ANSWER, "a", "<|im_end|>") == Join(2, NO_IDS, 0)


@pytest.mark.families
def test_a_sampled_header_is_not_printed_again(served: Callable[[str], Served]) -> None:
    assert join(served("glm4.5"), ANSWER, "a", "<|user|>") == Join(2, NO_IDS, 1)


@pytest.mark.families
def test_another_header_is_taken_back(served: Callable[[str], Served]) -> None:
    assert join(served("glm4.5"), CALLING, "a", "<|user|>") == Join(1, NO_IDS, 0)


@pytest.mark.families
def test_another_stop_behind_a_call_is_replaced_by_the_terminator_alone(served: Callable[[str], Served]) -> None:
    model = served("qwen3")
    assert join(model, CALLING, "a", "<|endoftext|>") == Join(1, model.tokenizer.encode("<|im_end|>"), 0)


@pytest.mark.families
def test_a_call_that_was_complete_when_it_was_cut_gets_no_second_end(served: Callable[[str], Served]) -> None:
    model = served("qwen3")
    assert join(model, CALLING, "a", ended=Cut.CONTENT) == Join(1, model.tokenizer.encode("<|im_end|>"), 0)


def test_reasoning_that_is_a_message_of_its_own_ends_at_its_first_terminator() -> None:
    text = "<|end|><|start|>assistant<|message|><|return|>"
    closed = Closing(text, (Placed(1, 0, 7), Placed(2, 7, 16), Placed(3, len(text) - 10, len(text))))
    assert reasoning_close(closed, frozenset({1, 3}), "<|end|>") == "<|end|>"


def test_a_template_that_leaves_out_an_empty_answer_still_ends_the_message() -> None:
    assert reasoning_close(Closing("</seed:think>\n", ()), frozenset({1}), "<seed:eos>") == "</seed:think><seed:eos>"
