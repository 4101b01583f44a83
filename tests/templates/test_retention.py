"""What of the past a prompt keeps under each policy."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.conversation import Call, Message, Role, Text, ToolCall, ToolSpec
from turnstile.errors import CallerError
from turnstile.generation import (
    BridgeKind,
    Cut,
    Forked,
    HeldAnswer,
    Match,
    NodeRef,
    Note,
    Opening,
    Prompt,
    Retention,
    Root,
    Spliced,
)
from turnstile.reasons import ForkReason, NoteCode, RootReason
from turnstile.templates.plan import plan
from turnstile.templates.retention import is_rewritten
from turnstile.templates.served import Served
from turnstile.templates.whole import whole
from turnstile.tokens import IdRun, SegmentKind, tiling_fault

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
LS = ToolSpec("ls", '{"type":"function","function":{"name":"ls","description":"List","parameters":{"type":"object"}}}')
USER = Message(Role.USER, (Text("What is here?"),))
NEXT = Message(Role.USER, (Text("And there?"),))
THOUGHT = Message(Role.ASSISTANT, (Text("Hello world"),), reasoning="Hm.")
PLAIN = Message(Role.ASSISTANT, (Text("Hello world"),))
CALLING = Message(Role.ASSISTANT, calls=(ToolCall("call_0001", "ls", '{"path":"/"}'),), reasoning="Hm.")
RESULT = Message(Role.TOOL, (Text("a.txt"),), call_id="call_0001")


def call_of(*messages: Message, kwargs: str = "{}") -> Call:
    return Call("openai.chat", "m", messages, tools=(LS,), template_kwargs=kwargs)


def root(model: Served, *messages: Message, kwargs: str = "{}") -> Prompt:
    return plan(model, call_of(*messages, kwargs=kwargs), Match(None, 0, messages, Root(RootReason.FIRST_CALL)), NOW)


def answered(model: Served, message: Message, text: str, kwargs: str = "{}") -> HeldAnswer:
    """A first prompt and an answer to it, as text."""
    held_T = root(model, USER, kwargs=kwargs).ids_T + model.tokenizer.encode(text)
    return HeldAnswer(NodeRef("c0"), held_T, message, Cut.NONE, (USER,))


def after(
    model: Served,
    held: HeldAnswer,
    *new_M: Message,
    retention: Retention,
    departure: Forked | None = None,
    kwargs: str = "{}",
) -> Prompt:
    call = call_of(*held.history_M, held.message, *new_M, kwargs=kwargs)
    return plan(model, call, Match(held, len(held.history_M) + 1, new_M, departure), NOW, retention)


@pytest.fixture(scope="session")
def qwen3(served: Callable[[str], Served]) -> Served:
    return served("qwen3")


THINKS = "<think>\nHm.\n</think>\n\nHello world<|im_end|>"
CALLS = '<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "ls", "arguments": {"path": "/"}}\n</tool_call><|im_end|>'


@pytest.mark.families
def test_by_default_thinking_stays_although_the_template_would_drop_it(qwen3: Served) -> None:
    held = answered(qwen3, THOUGHT, THINKS)
    prompt = after(qwen3, held, NEXT, retention=Retention.RETAIN)
    assert (prompt.history, prompt.held_T) == (Spliced(BridgeKind.SENTINEL), held.held_T)


@pytest.mark.families
@pytest.mark.parametrize("retention", [Retention.TOOL_CYCLE, Retention.TEMPLATE])
def test_where_the_template_drops_thinking_the_prompt_is_its_render_and_keeps_the_ids_in_common(
    qwen3: Served, retention: Retention
) -> None:
    held = answered(qwen3, THOUGHT, THINKS)
    prompt = after(qwen3, held, NEXT, retention=retention)
    expected = whole(qwen3, (USER, THOUGHT, NEXT), call_of(USER, THOUGHT, NEXT), NOW)
    first = len(root(qwen3, USER).ids_T)
    assert prompt.ids_T == expected.ids_A
    assert (prompt.parent, prompt.held_T) == (held.ref, held.held_T.slice(0, first))
    assert tiling_fault(prompt.added_segments, len(prompt.added_A)) is None
    assert prompt.added_segments[-1].kind is SegmentKind.SCAFFOLD
    assert prompt.history == Forked(
        ForkReason.RETENTION,
        message_index=1,
        was=THINKS,
        now="Hello world<|im_end|>\n<|im_start|>user\nAnd there?<|im_end|>\n"[:60],
    )
    assert Note(NoteCode.RERENDERED_HISTORY, f"from id {first} of {len(held.held_T)} held ones on") in prompt.notes
    assert prompt.opening is Opening.ANSWER


@pytest.mark.families
def test_where_the_template_writes_what_is_held_the_prompt_is_spliced_and_says_how(qwen3: Served) -> None:
    held = answered(qwen3, CALLING, CALLS)
    prompts = {each: after(qwen3, held, RESULT, retention=each) for each in Retention}
    assert {each: prompt.history for each, prompt in prompts.items()} == {
        Retention.RETAIN: Spliced(BridgeKind.SENTINEL),
        Retention.TOOL_CYCLE: Spliced(BridgeKind.SENTINEL),
        Retention.TEMPLATE: Spliced(BridgeKind.WHOLE_RENDER),
    }
    ids_and_kinds = {(prompt.held_T, prompt.added_A, prompt.added_segments) for prompt in prompts.values()}
    assert len(ids_and_kinds) == 1


@pytest.mark.families
def test_an_answer_that_encodes_otherwise_is_cut_where_it_first_differs(qwen3: Served) -> None:
    """Two line breaks, sampled one by one, are one token when text is encoded (splice law's first example)."""
    message = Message(Role.ASSISTANT, (Text("a\n\nb"),), CALLING.reasoning, CALLING.calls)
    before, newline, behind = map(
        qwen3.tokenizer.encode,
        (CALLS.partition("<tool_call>")[0] + "a", "\n", "b\n" + CALLS[CALLS.index("<tool_call>") :]),
    )
    kept = root(qwen3, USER).ids_T + before
    held = HeldAnswer(NodeRef("c0"), kept + newline + newline + behind, message, Cut.NONE, (USER,))
    prompt = after(qwen3, held, RESULT, retention=Retention.TEMPLATE)
    assert prompt.held_T == kept
    assert isinstance(prompt.history, Forked)
    assert (prompt.history.was[:3], prompt.history.now[:3], prompt.history.message_index) == ("\n\nb", "\n\nb", 1)


PIECES = ["a", "b", " b", "\n", "\n\n", "<think>", "</think>", "</", "<|im_end|>", "é", " Plut", "or", "  "]


@pytest.mark.families
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=12),
    thinks=st.booleans(),
    new=st.sampled_from([(NEXT,), (RESULT,), (RESULT, NEXT)]),
    retention=st.sampled_from(list(Retention)),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_held_ids_stay_in_front_and_fewer_of_them_only_under_a_fork(
    qwen3: Served, pieces: list[str], thinks: bool, new: tuple[Message, ...], retention: Retention
) -> None:
    text = "".join(pieces)
    answer = Message(Role.ASSISTANT, (Text(text),) if text else (), text if thinks else "", CALLING.calls)
    sampled = [token_id for piece in (*pieces, "<|im_end|>") for token_id in qwen3.tokenizer.encode(piece)]
    held = HeldAnswer(NodeRef("c0"), root(qwen3, USER).ids_T + IdRun.of(sampled), answer, Cut.NONE, (USER,))
    prompt = after(qwen3, held, *new, retention=retention)
    assert held.held_T.startswith(prompt.held_T)
    assert isinstance(prompt.history, Forked) is (len(prompt.held_T) < len(held.held_T))
    assert tiling_fault(prompt.added_segments, len(prompt.added_A)) is None
    if retention is Retention.TEMPLATE:
        assert prompt.ids_T == whole(qwen3, (USER, answer, *new), call_of(USER, answer, *new), NOW).ids_A


@pytest.mark.families
def test_a_tool_cycle_ends_with_a_user_message_and_not_with_a_result(qwen3: Served) -> None:
    held = answered(qwen3, CALLING, CALLS)
    call = call_of(USER, CALLING)
    found = [is_rewritten(qwen3, held, new, call, Retention.TOOL_CYCLE) for new in ((RESULT,), (RESULT, NEXT))]
    assert found == [False, True]


@pytest.mark.families
def test_without_thinking_since_the_last_user_message_a_tool_cycle_ends_as_it_is(qwen3: Served) -> None:
    before = HeldAnswer(NodeRef("c0"), IdRun.of([5]), PLAIN, Cut.NONE, (USER, THOUGHT, NEXT))
    within = HeldAnswer(NodeRef("c0"), IdRun.of([5]), PLAIN, Cut.NONE, (USER, CALLING, RESULT))
    call = call_of(USER)
    assert [is_rewritten(qwen3, held, (NEXT,), call, Retention.TOOL_CYCLE) for held in (before, within)] == [
        False,
        True,
    ]


@pytest.mark.families
@pytest.mark.parametrize(
    ("name", "kwargs", "rewritten"),
    [
        ("qwen3", "{}", True),
        ("qwen3-training", "{}", False),
        ("qwen3.6", "{}", True),
        ("qwen3.6", '{"preserve_thinking":true}', False),
        ("qwen3.8", "{}", False),
        ("glm4.7-flash", "{}", True),
        ("glm4.7-flash", '{"clear_thinking":false}', False),
        ("lfm2.5", '{"preserve_thinking":true}', False),
        ("qwq-32b", "{}", True),
    ],
)
def test_a_template_or_its_switch_that_keeps_thinking_needs_no_fork(
    served: Callable[[str], Served], name: str, kwargs: str, rewritten: bool
) -> None:
    held = HeldAnswer(NodeRef("c0"), IdRun.of([5]), THOUGHT, Cut.NONE, (USER,))
    call = call_of(USER, THOUGHT, NEXT, kwargs=kwargs)
    assert is_rewritten(served(name), held, (NEXT,), call, Retention.TOOL_CYCLE) is rewritten


@pytest.mark.families
def test_a_request_that_departs_for_a_reason_of_its_own_keeps_that_reason(qwen3: Served) -> None:
    held = answered(qwen3, THOUGHT, THINKS)
    edited = Forked(ForkReason.MESSAGE_EDITED, message_index=2)
    prompt = after(qwen3, held, NEXT, retention=Retention.TEMPLATE, departure=edited)
    assert prompt.history == edited
    assert NoteCode.RERENDERED_HISTORY in {note.code for note in prompt.notes}


@pytest.mark.families
def test_a_whole_render_that_the_template_refuses_is_the_callers_error(served: Callable[[str], Served]) -> None:
    model = served("mistral-small-3.2")
    held = HeldAnswer(NodeRef("c0"), IdRun.of([5, 2]), PLAIN, Cut.NONE, (USER, PLAIN, RESULT, NEXT, PLAIN, NEXT, NEXT))
    with pytest.raises(CallerError, match="render_failed"):
        after(model, held, NEXT, retention=Retention.TEMPLATE)
