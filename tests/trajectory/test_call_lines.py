from __future__ import annotations

import hashlib

import pytest

from turnstile.conversation import CallKind
from turnstile.generation import (
    BridgeKind,
    Draw,
    Forked,
    GrammarConstraint,
    Rerendered,
    Root,
    SchemaConstraint,
    Spliced,
)
from turnstile.reasons import ForkReason, RerenderReason, RootReason
from turnstile.tokens import IdRun
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.call_lines import history_reason, history_word, sampling_info

ROOT = [1, 10, 11, 20]


@pytest.mark.parametrize(
    ("history", "word", "reason"),
    [
        (Root(RootReason.FIRST_CALL), "root", None),
        (Root(RootReason.HEAD_CHANGED), "root", "head_changed"),
        (Spliced(BridgeKind.SENTINEL), "spliced", None),
        (Forked(ForkReason.MESSAGE_EDITED, message_index=2), "forked", "message_edited:2"),
        (Forked(ForkReason.REWOUND), "forked", "rewound"),
        (Rerendered(RerenderReason.NO_TERMINATOR), "rerendered", "no_terminator"),
    ],
)
def test_how_a_prompt_came_about_is_a_word_and_a_reason(history, word, reason):
    assert (history_word(history), history_reason(history)) == (word, reason)


def test_sampling_settings_are_those_that_were_in_force():
    info = sampling_info(Draw(temperature=0.7, top_k=20, stop=("x",), stop_ids=frozenset({9, 2}), max_tokens=5))
    assert (info.temperature, info.top_p, info.top_k, info.stop, info.stop_token_ids, info.max_tokens) == (
        0.7,
        1.0,
        20,
        ("x",),
        (2, 9),
        5,
    )
    assert (sampling_info(Draw()).top_k, info.logit_bias, info.structured_output) == (-1, False, None)


@pytest.mark.parametrize("constraint", [SchemaConstraint("{}"), GrammarConstraint("{}")])
def test_a_constraint_is_named_by_its_hash(constraint):
    assert sampling_info(Draw(constraint=constraint)).structured_output == hashlib.sha256(b"{}").hexdigest()


def test_hashes_and_counts_are_those_of_the_ids(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.turn("b", [3, 50, 20], [60, 2], first)
    call = assemble(journal.forest()).calls[1]
    assert call.prompt_sha256 == IdRun.of([*ROOT, 30, 2, 3, 50, 20]).sha256()
    assert call.completion_sha256 == IdRun.of([60, 2]).sha256()
    assert (call.usage.prompt_tokens, call.usage.completion_tokens) == (9, 2)


def test_calls_of_one_head_and_engine_share_it(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.turn("b", [3, 50, 20], [60, 2], first)
    rollout = assemble(journal.forest())
    assert ([call.head for call in rollout.calls], [call.sampling for call in rollout.calls]) == ([0, 0], [0, 0])
    (head,) = rollout.heads
    assert (head.model, head.engine, head.engine_version, head.vocab_size) == ("demo-model", "embedded", "1", 128)


def test_a_rerender_says_where_it_leaves_what_was_held(journal):
    journal.turn("a", ROOT, [30, 2])
    journal.turn("b", [*ROOT, 30, 9, 20], [60, 2], history=Rerendered(RerenderReason.CLOSING_MISMATCH, "tail"))
    call = assemble(journal.forest()).calls[1]
    assert (call.parent, call.fork_at, call.history_reason) == (None, 5, "closing_mismatch")


def test_a_parent_whose_end_was_cut_off_on_the_way_is_no_parent(journal):
    first = journal.turn("a", [1], [30, 31, 2])
    second = journal.turn("b", [3, 4], [], first, cut=1, history=Forked(ForkReason.STOP_MISMATCH))
    journal.turn("c", [5], [60, 2], second, cut=1, history=Forked(ForkReason.CONTINUED))
    assert [call.parent for call in assemble(journal.forest()).calls] == [None, None, None]


def test_a_harnesss_own_call_is_auxiliary_with_its_purpose_until_nobody_took_its_answer(journal):
    journal.start("a", ROOT, kind=CallKind.AUXILIARY, purpose="title")
    journal.commit("a", journal.choice("a", [30, 2]))
    journal.turn("b", [*ROOT, 7], [60, 2])
    journal.start("c", [*ROOT, 8], kind=CallKind.AUXILIARY, purpose="quota")
    journal.commit("c", journal.choice("c", [60, 2]))
    journal.undelivered("c")
    assert [(call.kind, call.kind_reason) for call in assemble(journal.forest()).calls] == [
        ("auxiliary", "title"),
        ("agent", None),
        ("discarded", "client_gone"),
    ]
