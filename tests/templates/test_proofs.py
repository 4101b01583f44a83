"""Patterns of requests, and what is remembered of them."""

from __future__ import annotations

import pytest

from turnstile.conversation import Call, Ending, Message, Role, Text, ToolCall, ToolSpec
from turnstile.generation import Cut, HeldAnswer, NodeRef
from turnstile.templates.proofs import Pattern, Proof, Proofs, Verdict, pattern_of
from turnstile.tokens import NO_IDS


def said(role: Role, text: str = "x", calls: int = 0) -> Message:
    made = tuple(ToolCall(f"id{at}", "ls", "{}") for at in range(calls))
    return Message(role=role, parts=(Text(text),) if text else (), calls=made)


SYSTEM, USER, ANSWER, RESULT = said(Role.SYSTEM), said(Role.USER), said(Role.ASSISTANT), said(Role.TOOL)
CALLING = said(Role.ASSISTANT, "", 1)


def pattern(
    *new_M: Message, answer: Message = ANSWER, past: tuple[Message, ...] = (USER,), cut: Cut = Cut.NONE
) -> Pattern:
    held = HeldAnswer(NodeRef("c0"), NO_IDS, answer, cut, past)
    return pattern_of(held, new_M, Call("openai.chat", "m", (*past, answer, *new_M)))


def test_a_pattern_names_kinds_and_neighbours_and_no_text() -> None:
    past = (SYSTEM, USER, CALLING, RESULT, CALLING, RESULT)
    assert pattern(said(Role.USER, "secret"), past=past) == Pattern(
        answer="assistant",
        cut=Cut.NONE,
        new=("user",),
        ending=Ending.ANSWER,
        past=frozenset(
            {
                ("^", "system"),
                ("system", "user"),
                ("user", "assistant+call"),
                ("assistant+call", "tool"),
                ("tool", "assistant+call"),
                ("tool", "assistant"),
            }
        ),
        offers_tools=False,
        kwargs="{}",
    )


def test_more_turns_of_the_same_kinds_are_the_same_pattern() -> None:
    turn = (USER, ANSWER)
    assert pattern(USER, past=(*turn, USER)) == pattern(USER, past=(*turn * 30, USER))


def test_of_many_messages_of_a_kind_in_a_row_two_are_told_apart_from_one_and_not_from_three() -> None:
    one, two, three = (pattern(*[RESULT] * count, answer=CALLING) for count in (1, 2, 3))
    assert (one == two, two == three) == (False, True)


@pytest.mark.parametrize(
    "other",
    [
        pattern(RESULT, answer=said(Role.ASSISTANT, "", 2)),
        pattern(RESULT, answer=said(Role.ASSISTANT, "text", 1)),
        pattern(RESULT, answer=CALLING, cut=Cut.CALL),
        pattern(RESULT, USER, answer=CALLING),
        pattern(RESULT, answer=CALLING, past=(SYSTEM, USER)),
        pattern(RESULT, answer=CALLING, past=(USER, ANSWER, SYSTEM, USER)),
    ],
    ids=["several calls", "text beside the call", "cut", "one message more", "system message", "late system message"],
)
def test_what_a_template_may_look_at_makes_another_pattern(other: Pattern) -> None:
    assert other != pattern(RESULT, answer=CALLING)


def test_ending_tools_and_template_arguments_are_part_of_a_pattern() -> None:
    held = HeldAnswer(NodeRef("c0"), NO_IDS, ANSWER, Cut.NONE, (USER,))
    plain = Call("openai.chat", "m", (USER, ANSWER, USER))
    calls = (
        plain,
        Call("openai.chat", "m", (USER, ANSWER, USER), ending=Ending.CONTINUE),
        Call("openai.chat", "m", (USER, ANSWER, USER), tools=(ToolSpec("ls", "{}"),)),
        Call("openai.chat", "m", (USER, ANSWER, USER), template_kwargs='{"enable_thinking":false}'),
    )
    assert len({pattern_of(held, (USER,), call) for call in calls}) == len(calls)


def test_a_pattern_can_be_read_in_a_log() -> None:
    assert str(pattern(RESULT, answer=CALLING, cut=Cut.CALL)) == (
        "assistant+call cut in its call, then tool (answer), behind ^ user, user assistant+call; arguments {}"
    )


def test_what_was_certified_and_what_was_learned_is_known_and_counted_apart() -> None:
    proofs = Proofs()
    certified, learned = Proof(Verdict.UNPROVEN, "it raises"), Proof(Verdict.NEEDS_HISTORY)
    proofs.certify(pattern(USER), certified)
    proofs.learn(pattern(USER, USER), learned)
    assert [proofs.known(pattern(*[USER] * count)) for count in (1, 2)] == [certified, learned]
    assert proofs.known(pattern(SYSTEM)) is None
    assert dict(proofs.counts()) == {"certified": 1, "needs_history": 1}


def test_a_template_that_raised_on_one_history_is_asked_again_and_only_another_verdict_is_news() -> None:
    proofs = Proofs()
    learned = [proofs.learn(pattern(USER), Proof(Verdict.UNPROVEN, why)) for why in ("one", "another")]
    assert (learned, proofs.known(pattern(USER)), dict(proofs.counts())) == ([True, False], None, {"unproven": 1})
    assert proofs.learn(pattern(USER), Proof(Verdict.EXACT))
    assert (proofs.known(pattern(USER)), dict(proofs.counts())) == (Proof(Verdict.EXACT), {"exact": 1})


def test_patterns_that_clients_make_up_are_forgotten_before_they_fill_the_memory() -> None:
    proofs = Proofs()
    proofs.certify(pattern(USER), Proof(Verdict.EXACT))
    held = HeldAnswer(NodeRef("c0"), NO_IDS, ANSWER, Cut.NONE, (USER,))
    for at in range(4097):
        call = Call("openai.chat", "m", (), template_kwargs=f'{{"n":{at}}}')
        proofs.learn(pattern_of(held, (USER,), call), Proof(Verdict.EXACT))
        proofs.drops_thinking(call, lambda: True)
    assert dict(proofs.counts()) == {"certified": 1, "exact": 1}
    assert proofs.known(pattern(USER)) == Proof(Verdict.EXACT)


def test_whether_thinking_is_dropped_is_found_out_once_for_each_set_of_arguments() -> None:
    proofs = Proofs()
    asked: list[str] = []

    def compute(name: str) -> bool:
        asked.append(name)
        return name == "keep"

    calls = {name: Call("openai.chat", "m", (), template_kwargs=f'{{"{name}":true}}') for name in ("keep", "drop")}
    found = [proofs.drops_thinking(calls[name], lambda name=name: compute(name)) for name in ("keep", "drop", "keep")]
    assert (found, asked) == ([True, False, True], ["keep", "drop"])
