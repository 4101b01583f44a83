"""Reading off a marker what a template prints behind an answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.conversation import Ending, Message, Role, Text, ToolCall
from turnstile.reasons import RerenderReason
from turnstile.templates.facts import Served, probe
from turnstile.templates.render import Template
from turnstile.templates.sentinel import (
    Boundary,
    Markers,
    Outlook,
    closing,
    cut,
    encode_new,
    markers_for,
    small_past,
    synthetic,
    tail,
)
from turnstile.templates.served import Closing, Mode, Refusal, Scene, StopClass

SCENE = Scene((), (), "{}", datetime(2026, 12, 1, tzinfo=UTC))
MARKERS = Markers("zqSENTINEL")
USER = Message(role=Role.USER, parts=(Text("Next?"),))
CALLING = Message(
    role=Role.ASSISTANT,
    parts=(Text("I look."),),
    calls=(ToolCall("c1", "ls", '{"a" "b"}'), ToolCall("c2", "cat", "")),
)


def with_template(model: Served, source: str) -> Served:
    template = Template(source, {})
    return Served("m", model.tokenizer, template, probe(template, model.tokenizer, model.stop_ids), model.stop_ids)


def boundary_of(model: Served, *new_M: Message, mode: Mode = Mode.CONTENT) -> Boundary | Refusal:
    closed = closing(model, SCENE, CALLING, mode)
    behind = tail(model, SCENE, small_past(SCENE), Outlook(CALLING, new_M, Ending.ANSWER, MARKERS), mode)
    if isinstance(closed, Refusal):
        return closed
    return behind if isinstance(behind, Refusal) else cut(model, closed, behind)


def test_a_marker_takes_the_place_of_the_body_and_of_nothing_that_is_printed_again() -> None:
    assert synthetic(CALLING, Mode.CONTENT, "MARK") == Message(role=Role.ASSISTANT, parts=(Text("MARK"),))
    assert synthetic(CALLING, Mode.REASONING, "MARK") == Message(role=Role.ASSISTANT, reasoning="MARK")
    assert synthetic(CALLING, Mode.ARGS, "MARK") == Message(
        role=Role.ASSISTANT,
        calls=(ToolCall("c1", "ls", '{"zqarg":0}'), ToolCall("c2", "cat", '{"zqarg":"MARK"}')),
    )


def test_markers_are_the_same_for_the_same_texts_and_count_on_where_one_is_taken() -> None:
    assert markers_for(("a", "b")) == Markers("zqSENTINEL")
    assert markers_for(("a zqSENTINEL b",)) == Markers("zqSENTINELax")
    assert markers_for(("zqSENTINEL zqSENTINELax",)) == Markers("zqSENTINELbx")


@given(st.lists(st.sampled_from(["zqSENTINEL", "zqSENTINELax", "zqSENTINELzx", "A", "qz", "x"]).map(str)).map("".join))
def test_a_marker_occurs_in_no_text_however_that_is_made(text: str) -> None:
    markers = markers_for((text,))
    assert not any(marker in text for marker in (markers.answer, markers.end, markers.body(0), markers.body(99)))


def test_no_marker_is_part_of_another() -> None:
    made = [MARKERS.answer, MARKERS.end, *map(MARKERS.body, range(200))]
    assert len(set(made)) == len(made)
    assert not any(one in other for one in made for other in made if one != other)


@pytest.mark.families
def test_what_is_new_begins_behind_the_terminator(served: Callable[[str], Served]) -> None:
    model = served("qwen3")
    assert boundary_of(model, USER) == Boundary(
        tail="<|im_end|>\n<|im_start|>user\nNext?<|im_end|>\n<|im_start|>assistant\n",
        anchor=0,
        end=len("<|im_end|>"),
        terminator=model.tokenizer.id_of("<|im_end|>") or 0,
        stop_class=StopClass.CLOSED,
    )


@pytest.mark.families
def test_a_call_is_closed_in_front_of_its_terminator(served: Callable[[str], Served]) -> None:
    boundary = boundary_of(served("qwen3"), USER, mode=Mode.ARGS)
    assert isinstance(boundary, Boundary)
    assert boundary.tail[: boundary.end] == '"}}\n</tool_call><|im_end|>'
    assert boundary.tail[boundary.anchor : boundary.end] == "<|im_end|>"


@pytest.mark.families
def test_a_token_that_stands_for_the_stop_token_in_history_is_the_terminator(served: Callable[[str], Served]) -> None:
    boundary = boundary_of(served("gpt-oss"), USER)
    assert isinstance(boundary, Boundary)
    assert (boundary.stop_class, boundary.tail[: boundary.end]) == (StopClass.ALIAS, "<|end|>")


@pytest.mark.families
def test_where_nothing_closes_a_message_what_is_new_begins_with_the_next_header(
    served: Callable[[str], Served],
) -> None:
    model = served("glm4.5")
    boundary = boundary_of(model, USER)
    assert isinstance(boundary, Boundary)
    assert (boundary.stop_class, boundary.anchor) == (StopClass.HEADER_STOP, boundary.end)
    new = encode_new(model, boundary)
    assert not isinstance(new, Refusal)
    assert new.ids_A[0] == model.tokenizer.id_of("<|user|>")


@pytest.mark.families
def test_the_last_stop_token_that_closing_and_history_share_is_the_terminator(served: Callable[[str], Served]) -> None:
    """Some templates print one more stop token behind a whole conversation, as Phi-3's does."""
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% else %}<|endoftext|>{% endif %}"
    )
    model = served("qwen3")
    both = model.stop_ids | {model.tokenizer.id_of("<|endoftext|>") or 0}
    template = Template(source, {})
    phi = Served("m", model.tokenizer, template, probe(template, model.tokenizer, both), both)
    boundary = boundary_of(phi, USER)
    assert isinstance(boundary, Boundary)
    assert (boundary.stop_class, boundary.tail[: boundary.end]) == (StopClass.CLOSED, "<|im_end|>")


CHATML = "{{% for m in messages %}}<|im_start|>{{{{ m.role }}}}\n{body}<|im_end|>\n{{% endfor %}}"


@pytest.mark.families
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('no') }}", RerenderReason.TEMPLATE_ERROR),
        (CHATML.format(body="{{ m.content if m.role == 'user' }}"), RerenderReason.SENTINEL_LOST),
        (CHATML.format(body="{{ m.content }}{{ m.content }}"), RerenderReason.SENTINEL_REPEATED),
        (
            CHATML.format(body="{{ m.content }}{% if loop.last and m.role == 'assistant' %}last{% endif %}"),
            RerenderReason.CLOSING_MISMATCH,
        ),
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", RerenderReason.NO_TERMINATOR),
    ],
)
def test_a_template_that_does_not_let_the_boundary_be_found_is_refused_with_the_reason(
    served: Callable[[str], Served], source: str, reason: RerenderReason
) -> None:
    boundary = boundary_of(with_template(served("qwen3"), source), USER)
    assert isinstance(boundary, Refusal)
    assert boundary.reason is reason


@pytest.mark.families
def test_a_closing_is_computed_once_for_all_answers_of_a_kind(served: Callable[[str], Served]) -> None:
    model = served("qwen3")
    first = closing(model, SCENE, CALLING, Mode.ARGS)
    other = Message(role=Role.ASSISTANT, calls=tuple(ToolCall("other", call.name, "{}") for call in CALLING.calls))
    assert isinstance(first, Closing)
    assert closing(model, SCENE, other, Mode.ARGS) is first
