"""What the journal keeps of a call."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime

import msgspec
import pytest

from turnstile.conversation import Call, Message, ReplyDelta, ReplyFinish, Role, Sampling, Text, ToolMode, Usage
from turnstile.engines.base import Capabilities
from turnstile.engines.pool import Seat
from turnstile.exchange.checks import Verdict
from turnstile.exchange.inflight import Flight
from turnstile.exchange.records import Planned, Sampled, call_started, sampled_choice, seated
from turnstile.exchange.sampling import Drawn
from turnstile.generation import (
    BridgeKind,
    Cut,
    Draw,
    Finish,
    Generation,
    GrammarConstraint,
    Head,
    HeldAnswer,
    LogprobsMode,
    Match,
    NodeRef,
    Note,
    Prompt,
    Rerendered,
    Root,
    Spliced,
)
from turnstile.history.forest import Forest
from turnstile.journal import EngineCall, PolicyRange, RolloutOpened
from turnstile.parsing.parser import Parsed
from turnstile.reasons import IncompleteReason, NoteCode, RerenderReason, RootReason
from turnstile.tokens import NO_IDS, IdRun, LogprobRun

AT = datetime(2026, 1, 1, tzinfo=UTC)
HEAD = Head("fingerprint", "m", "t", 10, "c", "{}", ())
ENGINE = Capabilities("llamacpp", "b1", ("m",), 100, 1, 10, "", frozenset(), frozenset(), 5, "count")
HI, MORE = (Message(Role.USER, (Text(text),)) for text in ("hi", "more"))
HELLO = Message(Role.ASSISTANT, (Text("hello"),))


def planned(held: Match, prompt: Prompt) -> Planned:
    return Planned(Call("openai.chat", "m", (HI,)), HEAD, held, prompt, Draw())


def test_the_head_is_kept_with_its_first_call_only() -> None:
    forest = Forest.of([RolloutOpened("r", 1, AT)])
    first = planned(
        Match(None, 0, (HI,), Root(RootReason.FIRST_CALL), (Note(NoteCode.MATCH_AMBIGUOUS),)),
        Prompt(
            HEAD, None, NO_IDS, IdRun.of([1, 2]), (), Root(RootReason.FIRST_CALL), notes=(Note(NoteCode.CONTENT_LOST),)
        ),
    )
    record = call_started(first, forest, Flight("d", "k", "c0"), ENGINE, AT)
    assert (record.rollout_id, record.call_id, record.new_head, record.new_M) == ("r", "c0", HEAD, (HI,))
    assert record.prompt_sha256 == IdRun.of([1, 2]).sha256()
    assert [note.code for note in record.notes] == [NoteCode.MATCH_AMBIGUOUS, NoteCode.CONTENT_LOST]
    forest.apply(record)
    assert call_started(first, forest, Flight("d", "k", "c1"), ENGINE, AT).new_head is None


def test_a_prompt_without_its_parents_ids_keeps_the_whole_conversation() -> None:
    forest = Forest.of([RolloutOpened("r", 1, AT)])
    held = HeldAnswer(NodeRef("c0"), IdRun.of([1, 2, 3]), HELLO, Cut.NONE, (HI,))
    again = planned(
        Match(held, 2, (MORE,), None),
        Prompt(HEAD, None, NO_IDS, IdRun.of([1]), (), Rerendered(RerenderReason.SENTINEL_LOST)),
    )
    record = call_started(again, forest, Flight("d", "", "c1"), ENGINE, AT)
    assert (record.parent, record.covered_M, record.new_M) == (None, 0, (HI, HELLO, MORE))


@pytest.mark.parametrize(
    ("asked", "sent", "notes"),
    [
        (200, 100, (Note(NoteCode.MAX_TOKENS_CLAMPED, "prompt=3 max=200 sent=100"),)),
        (200, 200, ()),
        (None, None, ()),
    ],
)
def test_fewer_tokens_than_the_client_asked_for_are_noted_with_their_numbers(
    asked: int | None, sent: int | None, notes: tuple[Note, ...]
) -> None:
    first = planned(
        Match(None, 0, (HI,), Root(RootReason.FIRST_CALL)),
        Prompt(HEAD, None, NO_IDS, IdRun.of([1, 2, 3]), (), Root(RootReason.FIRST_CALL)),
    )
    call = msgspec.structs.replace(first.call, sampling=Sampling(max_tokens=asked))
    clamped = msgspec.structs.replace(first, call=call, draw=Draw(max_tokens=sent))
    record = call_started(clamped, Forest.of([RolloutOpened("r", 1, AT)]), Flight("d", "", "c0"), ENGINE, AT)
    assert (record.notes, record.sampling.max_tokens, record.draw.max_tokens) == (notes, asked, sent)


GENERATION = Generation(
    IdRun.of([3, 4]), LogprobRun.of([-0.5, -0.25]), Finish.LENGTH, "limit", Usage(2, 2), LogprobsMode.RAW, 1.0,
    engine_request_id="e1", notes=(Note(NoteCode.CONSTRAINED),),
)  # fmt: skip
PARSED = Parsed(HELLO, ReplyDelta(), ReplyFinish.STOP, Cut.CONTENT, (Note(NoteCode.CUT_IN_CALL),), "x")
VERDICT = Verdict(Finish.STOP, (IncompleteReason.IDS_INCOMPLETE,), (Note(NoteCode.FINISH_CONFLICT),))


def test_a_choice_is_kept_as_sampled_with_the_finish_that_was_verified_and_all_notes() -> None:
    kept = sampled_choice(1, Sampled(GENERATION, VERDICT, PARSED, ()), Drawn(GENERATION, ()))
    assert (kept.choice, kept.ids_S, kept.logprobs_S) == (1, GENERATION.ids_S, GENERATION.logprobs_S)
    assert (kept.finish, kept.engine_finish_reason, kept.reply_finish) == (Finish.STOP, "limit", ReplyFinish.STOP)
    assert (kept.cut, kept.stop_string, kept.message) == (Cut.CONTENT, "x", HELLO)
    assert kept.incomplete == (IncompleteReason.IDS_INCOMPLETE,)
    assert [note.code for note in kept.notes] == [NoteCode.CONSTRAINED, NoteCode.FINISH_CONFLICT, NoteCode.CUT_IN_CALL]


@pytest.mark.parametrize(
    ("tiles", "versions", "kept_tiles"),
    [
        ((PolicyRange(0, 2, 3, 3),), (3, 3), False),
        ((PolicyRange(0, 2, 3, 3, "3"),), (3, 3), False),
        ((PolicyRange(0, 2, None, None),), (None, None), False),
        ((PolicyRange(0, 2, None, None, "default"),), (None, None), True),
        ((PolicyRange(0, 1, 3, 3, "3"), PolicyRange(1, 2, 4, 5)), (3, 5), True),
        ((PolicyRange(0, 1, 3, 3, "3"), PolicyRange(1, 2, None, None, "v4")), (None, None), True),
    ],
)
def test_versions_are_kept_for_the_whole_and_for_its_parts_where_those_say_more(
    tiles: tuple[PolicyRange, ...], versions: tuple[int | None, int | None], kept_tiles: bool
) -> None:
    calls = (EngineCall(1), EngineCall(1))
    drawn = Drawn(GENERATION, tiles, (Note(NoteCode.CONTINUED_AFTER_ABORT, "at id 1"),), calls)
    kept = sampled_choice(0, Sampled(GENERATION, VERDICT, PARSED, ()), drawn)
    assert (kept.policy_min, kept.policy_max) == versions
    assert (kept.policy_ranges, kept.engine_calls) == (tiles if kept_tiles else (), calls)
    assert Note(NoteCode.CONTINUED_AFTER_ABORT, "at id 1") in kept.notes


def test_a_call_says_where_it_goes_and_why_that_is_another_engine_than_before() -> None:
    first = planned(
        Match(None, 0, (HI,), Root(RootReason.FIRST_CALL)),
        Prompt(HEAD, None, NO_IDS, IdRun.of([1]), (), Root(RootReason.FIRST_CALL)),
    )
    record = call_started(first, Forest.of([RolloutOpened("r", 1, AT)]), Flight("d", "", "c0"), ENGINE, AT)
    stayed = seated(record, Seat("a:1", lambda: nullcontext(ENGINE)))
    moved = seated(record, Seat("b:2", lambda: nullcontext(ENGINE), "a:1", "It is down."))
    assert (stayed.engine_name, stayed.notes) == ("a:1", ())
    assert (moved.engine_name, moved.notes) == ("b:2", (Note(NoteCode.ENGINE_MOVED, "a:1 -> b:2: It is down."),))


SAID = Message(Role.ASSISTANT, (Text(" hello"),), reasoning="I greet")


@pytest.mark.parametrize(
    ("sent", "echoed"), [(SAID, None), (HELLO, HELLO), (HI, None)], ids=["as handed out", "another spelling", "other"]
)
def test_the_spelling_in_which_an_answer_came_back_is_kept_where_it_is_another(
    sent: Message, echoed: Message | None
) -> None:
    forest = Forest.of([RolloutOpened("r", 1, AT)])
    held = HeldAnswer(NodeRef("c0"), IdRun.of([1]), SAID, Cut.NONE, (HI,))
    prompt = Prompt(HEAD, NodeRef("c0"), IdRun.of([1]), IdRun.of([2]), (), Spliced(BridgeKind.SENTINEL))
    call = Call("openai.chat", "m", (HI, sent, MORE), tool_choice=ToolMode.NONE)
    record = call_started(
        Planned(call, HEAD, Match(held, 2, (MORE,), None), prompt, Draw()), forest, Flight("d", "", "c1"), ENGINE, AT
    )
    assert (record.echoed, record.tool_choice) == (echoed, ToolMode.NONE)


def test_keywords_that_a_grammar_lets_pass_are_noted_on_the_call() -> None:
    forest = Forest.of([RolloutOpened("r", 1, AT)])
    prompt = Prompt(HEAD, None, IdRun(), IdRun.of([2]), (), Root(RootReason.FIRST_CALL))
    notes = [
        call_started(
            Planned(Call("openai.chat", "m", (HI,)), HEAD, Match(None, 0, (HI,), None), prompt, Draw(constraint=made)),
            forest,
            Flight("d", "", "c1"),
            ENGINE,
            AT,
        ).notes
        for made in (GrammarConstraint("root ::= x"), GrammarConstraint("root ::= x", ("minimum", "pattern")))
    ]
    assert notes == [(), (Note(NoteCode.SCHEMA_NOT_ENFORCED, "minimum, pattern"),)]
