"""The ids between a held answer and the next one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from turnstile.conversation import Call, Message, Role, Text, ToolCall
from turnstile.generation import BridgeKind, Cut, HeldAnswer, NodeRef, Note
from turnstile.reasons import NoteCode, RerenderReason
from turnstile.templates.bridge import Bridge, Crossing, bridge, history_bridge, sentinel_bridge
from turnstile.templates.facts import Served, probe
from turnstile.templates.render import Template
from turnstile.templates.served import Refusal
from turnstile.tokens import IdRun, Segment, SegmentKind

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
USER = Message(role=Role.USER, parts=(Text("Next?"),))
ANSWER = Message(role=Role.ASSISTANT, parts=(Text("Hello"),))
CALLING = Message(role=Role.ASSISTANT, calls=(ToolCall("callid001", "ls", '{"path": "zqSENTINELAAqz"}'),))
RESULT = Message(role=Role.TOOL, parts=(Text("a.txt"),), call_id="callid001")


def held(model: Served, answer: Message, stop: str, *history_M: Message) -> HeldAnswer:
    ids = IdRun.of((5, model.tokenizer.id_of(stop) or 0))
    return HeldAnswer(NodeRef("call_1"), ids, answer, Cut.NONE, history_M or (USER,))


def crossing(model: Served, answer: HeldAnswer, *new_M: Message) -> Crossing:
    call = Call("openai.chat", "m", (*answer.history_M, answer.message, *new_M))
    return Crossing.of(model, answer, new_M, call, NOW)


def bridged(model: Served, answer: HeldAnswer, *new_M: Message) -> Bridge | Refusal:
    return bridge(model, answer, new_M, Call("openai.chat", "m", (*answer.history_M, answer.message, *new_M)), NOW)


def with_template(model: Served, source: str) -> Served:
    template = Template(source, {})
    return Served("m", model.tokenizer, template, probe(template, model.tokenizer, model.stop_ids), model.stop_ids)


@pytest.mark.families
def test_a_bridge_says_what_is_kept_what_is_added_and_who_put_it_there(served: Callable[[str], Served]) -> None:
    model = served("qwen3")
    new = "\n<|im_start|>user\nNext?<|im_end|>\n<|im_start|>assistant\n"
    assert bridged(model, held(model, ANSWER, "<|im_end|>"), USER) == Bridge(
        kind=BridgeKind.SENTINEL,
        kept_T=2,
        added_A=model.tokenizer.encode(new),
        segments=(
            Segment(0, 4, SegmentKind.SCAFFOLD),
            Segment(4, 6, SegmentKind.OBSERVATION),
            Segment(6, 11, SegmentKind.SCAFFOLD),
        ),
        text=new,
        notes=(),
    )


@pytest.mark.families
def test_both_bridges_agree_where_history_does_not_matter(served: Callable[[str], Served]) -> None:
    model = served("qwen3")
    at = crossing(model, held(model, CALLING, "<|im_end|>", USER, CALLING, RESULT, ANSWER, USER), RESULT)
    small, whole = sentinel_bridge(at), history_bridge(at)
    assert isinstance(small, Bridge)
    assert isinstance(whole, Bridge)
    assert small.added_A == whole.added_A
    assert (small.kind, whole.kind) == (BridgeKind.SENTINEL, BridgeKind.REAL_HISTORY)


@pytest.mark.families
def test_a_template_that_knows_no_calls_is_bridged_over_the_text(served: Callable[[str], Served]) -> None:
    model = served("smollm2")
    built = bridged(model, held(model, CALLING, "<|im_end|>"), RESULT)
    assert isinstance(built, Bridge)
    assert built.text == "\n<|im_start|>tool\na.txt<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.families
def test_a_new_message_that_the_template_leaves_out_is_noted(served: Callable[[str], Served]) -> None:
    model = served("gpt-oss")
    late = Message(role=Role.SYSTEM, parts=(Text("Few tokens are left."),))
    built = bridged(model, held(model, ANSWER, "<|return|>"), late, USER)
    assert isinstance(built, Bridge)
    assert built.notes == (Note(NoteCode.CONTENT_LOST, "new message 0 (system)"),)


@pytest.mark.families
def test_a_refusal_tells_the_reasons_of_both_ways(served: Callable[[str], Served]) -> None:
    model = served("qwen3.5")
    late = Message(role=Role.SYSTEM, parts=(Text("Few tokens are left."),))
    refused = bridged(model, held(model, ANSWER, "<|im_end|>"), late, USER)
    assert isinstance(refused, Refusal)
    assert refused.reason is RerenderReason.TEMPLATE_ERROR
    assert "System message must be at the beginning" in refused.detail


@pytest.mark.families
def test_where_the_small_conversation_is_refused_the_real_one_is_asked(served: Callable[[str], Served]) -> None:
    """A template may insist on what only the real history has."""
    source = (
        "{% if messages[0].content != 'First' %}{{ raise_exception('first') }}{% endif %}"
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    model = with_template(served("qwen3"), source)
    first = Message(role=Role.USER, parts=(Text("First"),))
    built = bridged(model, held(model, ANSWER, "<|im_end|>", first), USER)
    assert isinstance(built, Bridge)
    assert (built.kind, built.text) == (
        BridgeKind.REAL_HISTORY,
        "\n<|im_start|>user\nNext?<|im_end|>\n<|im_start|>assistant\n",
    )
