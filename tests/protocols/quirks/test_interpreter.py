"""What the interpreter does to a request."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnstile.conversation import (
    AnswerPiece,
    AnyText,
    Call,
    CallKind,
    Image,
    JsonSchema,
    Message,
    OutputForm,
    PieceKind,
    Role,
    Sampling,
    Text,
    Thread,
    ToolSpec,
)
from turnstile.history.digest import body_digest
from turnstile.protocols.quirks import KNOWN, apply
from turnstile.protocols.quirks.entry import (
    Action,
    Answers,
    HeaderTest,
    MarkAuxiliary,
    NameAgent,
    Place,
    Quirk,
    RemoveSystemLine,
    ToolsShown,
    When,
)

LINE = "x-anthropic-billing-header: cc_version=2.1; cch=aaaaa;"
USER = Message(Role.USER, (Text("Hi"),))
BILLING = (Quirk("billing_line", RemoveSystemLine("x-anthropic-billing-header:")),)


def system(*texts: str) -> Message:
    return Message(Role.SYSTEM, tuple(map(Text, texts)))


ANY_TEXT: OutputForm = AnyText()
NO_LIMIT = Sampling()
ALWAYS = When()


def call(*messages: Message, tools: int = 0, output: OutputForm = ANY_TEXT, sampling: Sampling = NO_LIMIT) -> Call:
    offered = tuple(ToolSpec(f"t{at}", "{}") for at in range(tools))
    return Call("openai.chat", "m", messages, tools=offered, output=output, sampling=sampling)


def own(action: Action, when: When = ALWAYS) -> tuple[Quirk, ...]:
    return (Quirk("own", action, when),)


@pytest.mark.parametrize("texts", [(LINE, "You are an agent"), (f"{LINE}\nYou are an agent",)], ids=["block", "line"])
def test_case_j1_the_billing_line_is_taken_out_whether_a_block_or_a_line(texts: tuple[str, ...]) -> None:
    seen = apply(BILLING, call(system(*texts), USER), {})
    assert (seen.messages, seen.quirks) == ((system("You are an agent"), USER), ("billing_line",))


def test_case_j1_a_similar_line_of_a_user_stays() -> None:
    said = call(system("You are an agent"), Message(Role.USER, (Text(LINE),)))
    late = call(USER, system(f"{LINE}\nx"))
    assert apply(BILLING, said, {}) is said
    assert apply(BILLING, late, {}) is late


def test_a_line_that_stands_elsewhere_is_only_found_where_it_is_looked_for() -> None:
    there = call(system("You help.", f"Rules\n{LINE}\nMore\n{LINE}"), USER)
    anywhere = own(RemoveSystemLine("x-anthropic-billing-header:", Place.ANY_LINE))
    assert apply(BILLING, there, {}) is there
    assert apply(anywhere, there, {}).messages == (system("You help.", "Rules\nMore"), USER)


def test_an_image_in_a_system_message_is_left_alone() -> None:
    odd = call(Message(Role.SYSTEM, (Text(LINE), Image("0" * 64, "image/png"))), USER)
    assert apply(BILLING, odd, {}) is odd


def test_a_system_message_of_which_nothing_is_left_is_gone_and_places_move_with_it() -> None:
    piece = AnswerPiece(2, "a", PieceKind.TEXT, 0, 0)
    thread = Thread("resp_1", (piece,), instructions_M=1)
    said = msgspec.structs.replace(call(system(LINE), USER, USER), thread=thread)
    seen = apply(BILLING, said, {})
    moved = msgspec.structs.replace(piece, index_M=1)
    assert (seen.messages, seen.thread) == ((USER, USER), Thread("resp_1", (moved,), instructions_M=0))


def test_a_conversation_is_never_left_without_a_message() -> None:
    assert apply(BILLING, call(system(LINE)), {}).messages == (Message(Role.SYSTEM),)


def test_case_j1_another_line_in_a_repeat_leaves_it_the_same_request_and_without_the_rule_it_is_another() -> None:
    def digest(line: str, *table: Quirk) -> str:
        return body_digest(apply(table, call(system(line, "You are an agent"), USER), {}))

    other = LINE.replace("aaaaa", "bbbbb")
    assert digest(LINE, *BILLING) == digest(other, *BILLING)
    assert digest(LINE) != digest(other)


def test_whose_call_it_is_and_who_asks_does_not_make_it_another_request() -> None:
    plain = call(system("s"), USER)
    table = (*own(MarkAuxiliary("p")), Quirk("named", NameAgent(("h",), "p")))
    seen = apply(table, plain, {"h": "a", "p": "b"})
    assert (seen.kind, seen.agent_name, seen.parent_agent) == (CallKind.AUXILIARY, "a", "b")
    assert body_digest(seen) == body_digest(plain)


def test_of_two_marks_the_first_counts_and_lines_are_removed_before_anything_is_looked_at() -> None:
    table = (
        Quirk("first", MarkAuxiliary("one"), When(system_has=("agent",))),
        Quirk("second", MarkAuxiliary("two"), When(system_has=("agent",))),
        Quirk("never", MarkAuxiliary("three"), When(system_has=("billing",))),
        *BILLING,
    )
    seen = apply(table, call(system(LINE, "You are an agent"), USER), {})
    assert (seen.kind, seen.purpose, seen.quirks) == (CallKind.AUXILIARY, "one", ("billing_line", "first"))


SCHEMA = JsonSchema('{"type":"object","properties":{"title":{},"x":{}}}')
ASSISTANT = Message(Role.ASSISTANT, (Text("A"),))
MEETS: list[tuple[When, Call, Call]] = [
    (When(dialects=("openai.chat",)), call(USER), msgspec.structs.replace(call(USER), dialect="other")),
    (When(tools=ToolsShown.NONE), call(USER), call(USER, tools=1)),
    (When(tools=ToolsShown.SOME), call(USER, tools=2), call(USER)),
    (When(answers=Answers.NONE), call(USER), call(USER, ASSISTANT, USER)),
    (When(output_fields=("x", "title")), call(USER, output=SCHEMA), call(USER)),
    (When(output_fields=("x",)), call(USER, output=JsonSchema('{"properties":{"x":1}}')), call(USER, output=SCHEMA)),
    (When(output_fields=("x",)), call(USER, output=JsonSchema('{"properties":{"x":1}}')),
     call(USER, output=JsonSchema('{"properties":[]}'))),
    (When(max_tokens=1), call(USER, sampling=Sampling(max_tokens=1)), call(USER)),
    (When(user_is="hi"), call(system("s"), USER), call(USER, USER)),
    (When(last_user_has=("nope", "h")), call(USER), call(USER, ASSISTANT)),
    (When(system_has=("b",)), call(system("a"), system("B"), USER), call(system("a"), USER, system("b"))),
]  # fmt: skip


@pytest.mark.parametrize(("when", "shown", "other"), MEETS)
def test_a_test_holds_for_what_it_asks_and_for_nothing_else(when: When, shown: Call, other: Call) -> None:
    table = own(MarkAuxiliary("p"), when)
    assert apply(table, shown, {}).kind is CallKind.AUXILIARY
    assert apply(table, other, {}) is other


@pytest.mark.parametrize(("text", "tools", "kind"), [("a", 0, "auxiliary"), ("a", 1, "turn"), ("b", 0, "turn")])
def test_all_tests_of_an_entry_must_hold(text: str, tools: int, kind: str) -> None:
    table = own(MarkAuxiliary("p"), When(tools=ToolsShown.NONE, system_has=("a",)))
    assert apply(table, call(system(text), USER, tools=tools), {}).kind == kind


def test_a_header_is_met_by_name_or_by_its_whole_value() -> None:
    named, valued = HeaderTest("h"), HeaderTest("h", "compact")

    def kind(test: HeaderTest, headers: dict[str, str]) -> CallKind:
        return apply(own(MarkAuxiliary("p"), When(headers=(test,))), call(USER), headers).kind

    assert [kind(named, {"h": "x"}), kind(valued, {"h": " compact "})] == [CallKind.AUXILIARY] * 2
    assert [kind(named, {}), kind(named, {"h": " "}), kind(valued, {"h": "compactor"})] == [CallKind.TURN] * 3


def test_only_the_beginning_of_a_text_is_searched() -> None:
    table = own(MarkAuxiliary("p"), When(system_has=("mark",)))
    near, far = call(system("x" * 1996 + "mark"), USER), call(system("x" * 1997 + "mark"), USER)
    assert (apply(table, near, {}).kind, apply(table, far, {}).kind) == (CallKind.AUXILIARY, CallKind.TURN)


def test_a_name_out_of_a_header_is_short_and_readable() -> None:
    seen = apply(own(NameAgent(("a", "b"))), call(USER), {"a": "x\x00\x1b[1my", "b": "z" * 500})
    assert seen.agent_name == "x[1my/" + "z" * 122
    without = apply(own(NameAgent(("a",))), call(USER), {"a": "\x07"})
    assert (without.agent_name, without.quirks) == ("", ())


TEXTS = st.one_of(st.text(max_size=20), st.sampled_from([LINE, f"{LINE}\n", f"{LINE}\nx", f"x\n{LINE}", "quota"]))
MESSAGES = st.lists(
    st.builds(
        Message,
        st.sampled_from([Role.SYSTEM, Role.USER, Role.ASSISTANT]),
        st.lists(TEXTS.map(Text), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=4,
)


@given(MESSAGES)
@example([Message(Role.SYSTEM, (Text(""), Text(LINE)))])
def test_whatever_is_sent_nothing_but_the_line_at_the_beginning_is_lost(messages: list[Message]) -> None:
    sent = call(*messages)
    seen = apply(KNOWN, sent, {})
    first, *rest = messages
    begins = first.role is Role.SYSTEM and bool(first.parts) and first.text.startswith("x-anthropic-billing-header:")
    left = seen.messages[len(seen.messages) - len(rest) :]
    assert left == tuple(rest)
    assert ("billing_line" in seen.quirks) is begins
    if begins:
        line, *others = [part.text for part in first.parts if isinstance(part, Text) and part.text]
        kept = line.partition("\n")[2] + "".join(others)
        assert "".join(each.text for each in seen.messages[: len(seen.messages) - len(rest)]) == kept
    else:
        assert seen.messages == sent.messages
