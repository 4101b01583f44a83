"""What a request names, put in from what is held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def agent(wired: Callable[..., Any], responding: Any) -> Any:
    room = wired()
    return room, responding.Responder(room.agent())


def test_a_named_response_costs_the_same_ids_as_its_whole_conversation(agent: Any, responding: Any) -> None:
    room, responder = agent
    room.script("A<|im_end|>", "B<|im_end|>", "B<|im_end|>")
    first = responder.say("one", instructions="I")
    named = responder.say("two", instructions="I", previous_response_id=responding.response(first)["id"])
    whole = responder.say("one", *responding.items(first), "two", instructions="I")
    assert named.history == "spliced"
    assert named.prompt == whole.prompt


def test_named_responses_follow_one_another(agent: Any, responding: Any) -> None:
    room, responder = agent
    said = None
    for turn in range(6):
        room.script(f"A{turn}<|im_end|>")
        previous = {} if said is None else {"previous_response_id": responding.response(said)["id"]}
        said = responder.say(f"q{turn}", **previous)
    summary = responder.agent.summary
    assert summary["history"] == {"root": 1, "spliced": 5}


def test_going_on_twice_from_one_response_is_a_branch(agent: Any, responding: Any) -> None:
    room, responder = agent
    room.script("A<|im_end|>", "B<|im_end|>", "C<|im_end|>")
    previous = {"previous_response_id": responding.response(responder.say("q"))["id"]}
    left, right = responder.say("left", **previous), responder.say("right", **previous)
    assert left.history == "spliced"
    assert right.history in {"spliced", "forked:rewound"}
    assert right.prompt[: len(left.prompt) - 10] == left.prompt[: len(left.prompt) - 10]


def test_a_retry_of_a_request_that_names_a_response_is_given_the_same_answer(agent: Any, responding: Any) -> None:
    room, responder = agent
    room.script("A<|im_end|>", "B<|im_end|>")
    previous = {"previous_response_id": responding.response(responder.say("q"))["id"]}
    first = responder.say("more", **previous)
    again = responder.say("more", **previous, headers={"x-stainless-retry-count": "1"})
    answers = [(each["id"], each["output"]) for each in map(responding.response, (first, again))]
    assert (answers[1], again.prompts) == (answers[0], 0)


@pytest.mark.parametrize("item", ["msg_{answer}-0", "fc_{answer}-3", "rs_nobody-c0-0"])
def test_an_item_is_found_where_it_is_held_and_refused_where_not(agent: Any, responding: Any, item: str) -> None:
    room, responder = agent
    room.script("A<|im_end|>")
    answer = responding.response(responder.say("q"))["id"].removeprefix("resp_")
    reference = {"type": "item_reference", "id": item.format(answer=answer)}
    if item.startswith("msg"):
        room.script("B<|im_end|>")
        assert responder.say("q", reference, "more").history == "spliced"
    else:
        refused = responder.say("q", reference, "more")
        assert (refused.status, refused.error["code"]) == (404, "item_not_found")


def test_responses_of_an_earlier_attempt_are_not_held(wired: Callable[..., Any], responding: Any) -> None:
    room = wired()
    first = responding.Responder(room.agent(rollout_id="again"))
    room.script("A<|im_end|>")
    named = responding.response(first.say("q"))["id"]
    first.agent.handle.finish()
    second = responding.Responder(room.agent(rollout_id="again"))
    room.script("A<|im_end|>")
    renamed = responding.response(second.say("q"))["id"]
    refused = second.say("more", previous_response_id=named)
    assert (named, renamed) == ("resp_again-c0", "resp_again-2-c0")
    assert refused.error["code"] == "previous_response_not_found"
