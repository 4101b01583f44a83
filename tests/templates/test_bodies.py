"""Where the texts of new messages stand in a rendered text."""

from __future__ import annotations

import html
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.conversation import Ending, Image, Message, Role, Text
from turnstile.templates.bodies import Body, Framed, bodies_in, framed, kinds, printed_texts, survives, unmistakable
from turnstile.templates.render import ContentForm, MessageForm
from turnstile.templates.sentinel import Markers
from turnstile.tokens import SegmentKind

MARKERS = Markers("zqSENTINEL")
FORM = MessageForm(joiner="\n")
FIRST, SECOND = MARKERS.body(0), MARKERS.body(2)


def printed(*texts: str) -> str:
    return "<|end|>\nuser\n" + "<|end|>\nuser\n".join(texts) + "<|end|>\nassistant\n"


@pytest.mark.parametrize(
    "spelled", [str, str.strip, str.lstrip, str.rstrip, lambda text: json.dumps(text)[1:-1], html.escape]
)
def test_a_text_is_found_by_what_stands_around_it_however_the_template_prints_it(
    spelled: Callable[[str], str],
) -> None:
    text = " user\n<b>é "
    frame = printed(FIRST, SECOND)
    behind = printed(spelled(text), "user")
    start = len("<|end|>\nuser\n")
    end = start + len(spelled(text))
    second = end + len("<|end|>\nuser\n")
    assert bodies_in(behind, frame, {FIRST: text, SECOND: "user"}) == (
        Body(FIRST, start, end),
        Body(SECOND, second, second + 4),
    )


@given(st.lists(st.sampled_from(["user", "<|end|>", "\n", "assistant", "x"]), max_size=8).map("".join))
def test_a_text_that_looks_like_its_surroundings_is_found_where_it_stands(text: str) -> None:
    start = len("<|end|>\nuser\n")
    found = bodies_in(printed(text, "last"), printed(FIRST, SECOND), {FIRST: text, SECOND: "last"})
    assert found[0] == Body(FIRST, start, start + len(text))


def test_a_text_that_the_template_spells_in_its_own_way_ends_where_what_follows_begins() -> None:
    start = len("<|end|>\nuser\n")
    found = bodies_in(printed("A B"), printed(FIRST), {FIRST: "a b"})
    assert found == (Body(FIRST, start, start + 3),)


def test_a_text_that_is_not_printed_is_left_out() -> None:
    assert bodies_in(printed("b"), printed(SECOND), {FIRST: "a", SECOND: "b"}) == (Body(SECOND, 13, 14),)
    assert bodies_in(printed("b"), printed("b"), {FIRST: "a"}) == ()
    assert bodies_in("other", printed(FIRST), {FIRST: "a"}) == ()


def test_long_texts_that_stand_there_once_need_no_frame() -> None:
    one, two = "a" * 64 + ".", "b" * 64 + "."
    assert unmistakable(f"x{one}y{two}", {FIRST: one, SECOND: two}) == (Body(FIRST, 1, 66), Body(SECOND, 67, 132))
    assert unmistakable(f"x{two}y{one}", {FIRST: one, SECOND: two}) == ()
    assert unmistakable(f"x{one}y{one}", {FIRST: one}) == ()
    assert unmistakable("user", {FIRST: "user"}) == ()
    assert unmistakable("user", {}) == ()


def test_every_text_but_that_of_a_message_to_be_continued_is_framed() -> None:
    user = Message(role=Role.USER, parts=(Text("a"), Text("b")))
    thinking = Message(role=Role.ASSISTANT, parts=(Text("c"),), reasoning="d")
    empty = Message(role=Role.TOOL, call_id="1")
    begun = Message(role=Role.ASSISTANT, parts=(Text("e"),))
    assert framed((user, thinking, empty, begun), Ending.CONTINUE, MARKERS, FORM) == Framed(
        messages=(
            Message(role=Role.USER, parts=(Text(FIRST),)),
            Message(role=Role.ASSISTANT, parts=(Text(MARKERS.body(1)),), reasoning=SECOND),
            empty,
            begun,
        ),
        texts={FIRST: "a\nb", MARKERS.body(1): "c", SECOND: "d"},
        contents={FIRST: 0, MARKERS.body(1): 1},
    )


def test_texts_beside_an_image_are_framed_one_by_one_and_the_image_stays() -> None:
    image = Image("00" * 32, "image/png")
    user = Message(role=Role.USER, parts=(Text("a"), image, Text("b")))
    assert framed((user,), Ending.ANSWER, MARKERS, FORM) == Framed(
        messages=(Message(role=Role.USER, parts=(Text(FIRST), image, Text(MARKERS.body(1)))),),
        texts={FIRST: "a", MARKERS.body(1): "b"},
        contents={FIRST: 0, MARKERS.body(1): 0},
    )
    assert printed_texts(user, FORM) == ("a", "b")


def test_parts_that_are_printed_one_by_one_have_nothing_between_them() -> None:
    user = Message(role=Role.USER, parts=(Text("a"), Text("b")))
    parts = MessageForm(content=ContentForm.PARTS)
    assert framed((user,), Ending.ANSWER, MARKERS, parts).texts == {FIRST: "ab"}


def test_an_id_inside_a_body_is_observation_and_one_over_its_edge_is_scaffold() -> None:
    offsets = ((0, 2), (2, 5), (5, 6), (6, 9), (9, 10))
    assert kinds(offsets, (Body("m", 2, 8),)) == [
        (1, SegmentKind.SCAFFOLD),
        (2, SegmentKind.OBSERVATION),
        (2, SegmentKind.SCAFFOLD),
    ]
    assert kinds(offsets, ()) == [(5, SegmentKind.SCAFFOLD)]


def test_a_text_survives_if_its_ends_are_printed_however_escaped() -> None:
    text = 'a "quoted" <b> text that is long enough & ends here'
    assert survives(text, json.dumps(text))
    assert survives(text, html.escape(text, quote=False))
    assert survives(text, text.replace(" ", "\n"))
    assert not survives(text, text[:30])
    assert survives("", "anything")


def test_a_long_text_is_found_as_json_or_without_its_last_blanks_with_no_second_render() -> None:
    lines = "\n".join(f"line {at} of a file" for at in range(9))
    as_json = lines.replace("\n", "\\n")
    assert unmistakable(f'"{as_json}"<end>', {"m": lines}) == (Body("m", 1, 1 + len(as_json)),)
    assert unmistakable(f"<{lines}<end>", {"m": lines + "\n"}) == (Body("m", 1, 1 + len(lines)),)
    assert unmistakable(f"\n{lines}<end>", {"m": "\n " + lines + "\n"}) == ()
