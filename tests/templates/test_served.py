"""What stays the same while a model is served."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from turnstile.conversation import Call, Message, Role, Text, ToolSpec
from turnstile.templates.facts import Served
from turnstile.templates.served import Closing, ClosingKey, Mode, Scene, leading_system

NOW = datetime(2026, 12, 1, tzinfo=UTC)
SYSTEM = Message(role=Role.SYSTEM, parts=(Text("s"),))
USER = Message(role=Role.USER, parts=(Text("u"),))


def test_only_system_messages_before_all_others_lead() -> None:
    assert leading_system((SYSTEM, SYSTEM, USER, SYSTEM)) == (SYSTEM, SYSTEM)
    assert leading_system((USER, SYSTEM)) == ()
    assert leading_system((SYSTEM,)) == (SYSTEM,)


def test_a_scene_is_what_does_not_change_from_turn_to_turn() -> None:
    call = Call("openai.chat", "m", (SYSTEM, USER), tools=(ToolSpec("ls", '{"a":1}'),), template_kwargs='{"b":2}')
    assert Scene.of(call, call.messages, NOW) == Scene((SYSTEM,), ('{"a":1}',), '{"b":2}', NOW)


@pytest.mark.families
def test_closings_are_computed_once_and_their_number_is_bounded(served: Callable[[str], Served]) -> None:
    known = served("qwen3")
    model = Served("m", known.tokenizer, known.template, known.facts, known.stop_ids)
    computed: list[int] = []

    def closing_of(number: int) -> Closing:
        def compute() -> Closing:
            computed.append(number)
            return Closing(str(number), ())

        key: ClosingKey = (Mode.ARGS, (str(number),), (), "{}", False)
        found = model.closing(key, compute)
        assert isinstance(found, Closing)
        return found

    assert closing_of(0) is closing_of(0)
    assert computed == [0]
    for number in range(1, 1025):
        closing_of(number)
    assert closing_of(0) == Closing("0", ())
    assert computed.count(0) == 2


@pytest.mark.families
def test_control_text_is_that_of_control_tokens_only(served: Callable[[str], Served]) -> None:
    pattern = served("qwen3").control_text
    assert pattern is not None
    assert pattern.findall("a <|im_end|> <tool_call> <|im_end> <|endoftext|>") == ["<|im_end|>", "<|endoftext|>"]
