"""Which bridge a request gets: what is certified at once, what is not after one comparison."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest

from turnstile.conversation import Call, Message, Role, Text, ToolCall, ToolSpec
from turnstile.generation import BridgeKind, Cut, HeldAnswer, NodeRef, Note
from turnstile.reasons import NoteCode, RerenderReason
from turnstile.templates.bridge import Bridge, bridge
from turnstile.templates.certificate import Certificate, refused
from turnstile.templates.certify import certify
from turnstile.templates.facts import probe
from turnstile.templates.proofs import Proof, Verdict, pattern_of
from turnstile.templates.proving import proven_bridge, take_over
from turnstile.templates.render import Template
from turnstile.templates.served import Refusal, Served
from turnstile.tokens import IdRun

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
IM_END = 151645

TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
OPENS_OTHERWISE = TURNS.replace(
    "{% if add", "{% if messages[1:-1] | selectattr('role', 'equalto', 'system') | list %}[late]{% endif %}{% if add"
)
"""Prints a word in front of the generation prompt once a system message came late."""
RAISES = (
    "{% if messages[1:-1] | selectattr('role', 'equalto', 'system') | list %}{{ raise_exception('late') }}{% endif %}"
    + TURNS
)


def said(role: Role, text: str = "x") -> Message:
    return Message(role=role, parts=(Text(text),))


USER, ANSWER, SYSTEM = said(Role.USER), said(Role.ASSISTANT), said(Role.SYSTEM)
LATE = (USER, ANSWER, SYSTEM, USER)


@pytest.fixture
def model(served: Callable[[str], Served]) -> Callable[[str], Served]:
    """A fresh model with Qwen3's tokenizer and any template."""

    def model(source: str) -> Served:
        tokenizer = served("qwen3").tokenizer
        template = Template(source, {})
        return Served("m", tokenizer, template, probe(template, tokenizer, frozenset({IM_END})), frozenset({IM_END}))

    return model


def crossing(model: Served, past: tuple[Message, ...], *new_M: Message) -> Bridge | Refusal:
    held = HeldAnswer(NodeRef("c0"), IdRun.of([5, IM_END]), ANSWER, Cut.NONE, past)
    return proven_bridge(model, held, new_M, Call("openai.chat", "m", (*past, ANSWER, *new_M)), NOW)


def proof(model: Served, past: tuple[Message, ...], *new_M: Message) -> Proof | None:
    held = HeldAnswer(NodeRef("c0"), IdRun(), ANSWER, Cut.NONE, past)
    return model.proofs.known(pattern_of(held, new_M, Call("openai.chat", "m", (*past, ANSWER, *new_M))))


def built(found: Bridge | Refusal) -> tuple[BridgeKind, tuple[Note, ...]]:
    assert isinstance(found, Bridge), found
    return found.kind, found.notes


@pytest.mark.families
def test_a_pattern_that_both_bridges_agree_on_is_exact_from_its_first_use_on(model: Callable[[str], Served]) -> None:
    plain = model(TURNS)
    assert proof(plain, LATE, USER) is None
    assert [built(crossing(plain, LATE, USER)) for _ in range(2)] == [(BridgeKind.SENTINEL, ())] * 2
    assert proof(plain, LATE, USER) == Proof(Verdict.EXACT)


@pytest.mark.families
def test_a_pattern_that_only_the_history_shows_gets_its_bridge_from_there_at_once(
    model: Callable[[str], Served], caplog: pytest.LogCaptureFixture
) -> None:
    other = model(OPENS_OTHERWISE)
    with caplog.at_level(logging.WARNING, "turnstile.templates"):
        found = [crossing(other, LATE, USER) for _ in range(2)]
    assert [built(each) for each in found] == [(BridgeKind.REAL_HISTORY, ())] * 2
    assert all("[late]" in each.text for each in found if isinstance(each, Bridge))
    assert proof(other, LATE, USER) == Proof(Verdict.NEEDS_HISTORY)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "first request of its pattern, needs_history"
    ]


@pytest.mark.families
def test_a_pattern_whose_whole_history_the_template_refuses_is_spliced_and_noted_each_time(
    model: Callable[[str], Served],
) -> None:
    strict = model(RAISES)
    for _ in range(2):
        kind, notes = built(crossing(strict, LATE, USER))
        assert (kind, [note.code for note in notes]) == (BridgeKind.SENTINEL, [NoteCode.LOOSER_THAN_TEMPLATE])
        assert "late" in notes[0].detail
    assert built(crossing(strict, (USER,), USER)) == (BridgeKind.SENTINEL, ())


@pytest.mark.families
def test_a_history_that_the_template_refuses_casts_no_doubt_on_those_that_it_takes(
    served: Callable[[str], Served],
) -> None:
    """Qwen3.5's template raises on a call of the past whose arguments are no JSON object."""
    qwen = fresh(served("qwen3.5"))

    def notes(arguments: str) -> list[NoteCode]:
        calling = Message(role=Role.ASSISTANT, calls=(ToolCall("id", "ls", arguments),))
        past = (USER, calling, Message(role=Role.TOOL, parts=(Text("a.txt"),), call_id="id"))
        held = HeldAnswer(NodeRef("c0"), IdRun.of([5, min(qwen.stop_ids)]), ANSWER, Cut.NONE, past)
        found = proven_bridge(qwen, held, (USER,), Call("openai.chat", "m", (*past, ANSWER, USER)), NOW)
        assert isinstance(found, Bridge)
        return [note.code for note in found.notes]

    assert [notes(each) for each in ('{"a" 1}', "{}", '{"a" 1}')] == [[NoteCode.LOOSER_THAN_TEMPLATE], [], []]


@pytest.mark.families
def test_where_no_bridge_is_found_the_reason_is_that_of_the_bridge_and_nothing_is_learned(
    model: Callable[[str], Served],
) -> None:
    strict = model(RAISES)
    found = crossing(strict, (USER,), SYSTEM, USER)
    assert isinstance(found, Refusal)
    assert found.reason is RerenderReason.TEMPLATE_ERROR
    assert proof(strict, (USER,), SYSTEM, USER) is None


@pytest.mark.families
def test_a_refused_template_is_never_spliced(model: Callable[[str], Served]) -> None:
    plain = model(TURNS)
    take_over(plain, refused("No stop token is known"))
    assert crossing(plain, (USER,), USER) == Refusal(RerenderReason.NOT_CERTIFIED, "No stop token is known")


def fresh(model: Served) -> Served:
    return dataclasses.replace(model, proofs=type(model.proofs)())


@pytest.fixture(scope="session")
def certified(served: Callable[[str], Served]) -> Callable[[str], Certificate]:
    return lambda name: certify(served(name))


@pytest.mark.families
def test_what_is_certified_exact_is_spliced_without_a_look_at_the_history(
    served: Callable[[str], Served], certified: Callable[[str], Certificate]
) -> None:
    qwen3 = fresh(served("qwen3"))
    take_over(qwen3, certified("qwen3"))
    before = dict(qwen3.proofs.counts())
    past = (SYSTEM, USER)
    assert built(crossing(qwen3, past, USER))[0] is BridgeKind.SENTINEL
    assert proof(qwen3, past, USER) == Proof(Verdict.EXACT)
    assert dict(qwen3.proofs.counts()) == before
    assert set(before) == {"certified"}


@pytest.mark.families
def test_shapes_of_one_pattern_that_disagree_certify_nothing(
    served: Callable[[str], Served], certified: Callable[[str], Certificate]
) -> None:
    certificate = certified("qwen3")
    shapes = tuple(
        msgspec.structs.replace(each, verdict=Verdict.NEEDS_HISTORY) if each.shape == "user_ws" else each
        for each in certificate.shapes
    )
    ls = ToolSpec("ls", '{"type":"function","function":{"name":"ls","parameters":{}}}')
    call = Call("openai.chat", "m", (SYSTEM, USER, ANSWER, USER), tools=(ls,))
    held = HeldAnswer(NodeRef("c0"), IdRun(), ANSWER, Cut.NONE, (SYSTEM, USER))
    known: list[Proof | None] = []
    for each in (certificate, msgspec.structs.replace(certificate, shapes=shapes)):
        qwen3 = fresh(served("qwen3"))
        take_over(qwen3, each)
        known.append(qwen3.proofs.known(pattern_of(held, (USER,), call)))
    assert known == [Proof(Verdict.EXACT), None]


@pytest.mark.families
def test_what_a_certificate_says_cannot_be_proven_is_noted_from_the_first_use_on(
    served: Callable[[str], Served], certified: Callable[[str], Certificate]
) -> None:
    """Mistral refuses a user message right behind a tool result; the small conversation does not show it."""
    mistral = fresh(served("mistral-small-3.2"))
    take_over(mistral, certified("mistral-small-3.2"))
    assert dict(mistral.proofs.counts()).keys() == {"certified"}
    calling = Message(role=Role.ASSISTANT, calls=(ToolCall("abcdefgh1", "ls", "{}"),))
    result = Message(role=Role.TOOL, parts=(Text("a.txt"),), call_id="abcdefgh1")
    ls = ToolSpec(
        "ls", '{"type":"function","function":{"name":"ls","description":"List","parameters":{"type":"object"}}}'
    )
    past = (SYSTEM, USER)
    held = HeldAnswer(NodeRef("c0"), IdRun.of([5, min(mistral.stop_ids)]), calling, Cut.NONE, past)
    call = Call("openai.chat", "m", (*past, calling, result, USER), tools=(ls,))
    before = dict(mistral.proofs.counts())
    found = proven_bridge(mistral, held, (result, USER), call, NOW)
    assert isinstance(found, Bridge)
    assert [note.code for note in found.notes] == [NoteCode.LOOSER_THAN_TEMPLATE]
    assert dict(mistral.proofs.counts()) == before


@pytest.mark.families
@pytest.mark.parametrize("name", ["qwen3", "llama3.1", "gpt-oss", "glm4.5", "deepseek-v3", "gemma4", "kimi-k2"])
def test_a_certificate_never_changes_the_ids_of_a_bridge(
    served: Callable[[str], Served], certified: Callable[[str], Certificate], name: str
) -> None:
    plain, informed = fresh(served(name)), fresh(served(name))
    take_over(informed, certified(name))
    stop = max(plain.stop_ids)
    for past in ((USER,), (SYSTEM, USER), (SYSTEM, USER, ANSWER, USER)):
        held = HeldAnswer(NodeRef("c0"), IdRun.of([5, stop]), ANSWER, Cut.NONE, past)
        call = Call("openai.chat", "m", (*past, ANSWER, USER))
        expected = bridge(plain, held, (USER,), call, NOW)
        assert isinstance(expected, Bridge)
        for model in (plain, informed, informed):
            found = proven_bridge(model, held, (USER,), call, NOW)
            assert isinstance(found, Bridge)
            assert (found.kept_T, found.added_A) == (expected.kept_T, expected.added_A)
