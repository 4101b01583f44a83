"""Values between planning and sampling."""

from __future__ import annotations

import pytest

from turnstile.generation import (
    BridgeKind,
    Draw,
    Forked,
    GrammarConstraint,
    Head,
    History,
    NodeRef,
    Prompt,
    Rerendered,
    Root,
    Spliced,
    history_header,
)
from turnstile.reasons import ForkReason, RerenderReason, RootReason
from turnstile.tokens import IdRun


@pytest.mark.parametrize(
    ("history", "header"),
    [
        (Root(RootReason.FIRST_CALL), "root"),
        (Spliced(BridgeKind.SENTINEL), "spliced"),
        (Forked(ForkReason.MESSAGE_EDITED, message_index=3), "forked:message_edited"),
        (Rerendered(RerenderReason.SENTINEL_LOST), "rerendered:sentinel_lost"),
    ],
)
def test_the_history_header_says_how_the_prompt_came_about(history: History, header: str) -> None:
    assert history_header(history) == header


def test_the_engine_runs_the_held_ids_and_then_the_added_ones() -> None:
    head = Head("f", "m", "t", 100, "c", "{}", ())
    prompt = Prompt(head, None, IdRun.of([1, 2]), IdRun.of([3]), (), Root(RootReason.FIRST_CALL))
    assert (prompt.ids_T, len(prompt)) == (IdRun.of([1, 2, 3]), 3)


@pytest.mark.parametrize(
    "draw",
    [
        Draw(top_p=0.9),
        Draw(top_k=5),
        Draw(min_p=0.1),
        Draw(presence_penalty=1.0),
        Draw(frequency_penalty=1.0),
        Draw(repetition_penalty=1.1),
        Draw(logit_bias=((1, 5.0),)),
        Draw(constraint=GrammarConstraint("root ::= x")),
    ],
)
def test_a_draw_with_any_filter_is_not_plain_softmax(draw: Draw) -> None:
    assert Draw(temperature=0.7).is_unfiltered
    assert not draw.is_unfiltered


def test_the_first_choice_of_a_call_is_named_as_the_call() -> None:
    assert (str(NodeRef("c3")), str(NodeRef("c3", 2))) == ("c3", "c3.2")
