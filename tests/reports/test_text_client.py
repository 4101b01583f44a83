"""What a client of text would have sent: its own spelling of each answer, and the text of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from turnstile.conversation import Message, Role
from turnstile.history.forest import Forest
from turnstile.reports.drift import Comparer, DriftKind
from turnstile.reports.drift_sources import prompt_ids, prompt_of_call
from turnstile.reports.text_client import conversation_of, prompt_text, request_messages, sampled_spans, sequence_text
from turnstile.templates.served import Served

pytestmark = pytest.mark.families


@pytest.fixture
def room(wired: Callable[..., Any]) -> Any:
    return wired("qwen3")


@pytest.fixture
def served(family_files: Callable[[str], Any]) -> Served:
    from turnstile.templates.facts import serve

    return serve(family_files("qwen3"), model="m")


def told(forest: Forest, call_id: str) -> list[tuple[Role, str, str]]:
    return [(each.role, each.text, each.reasoning) for each in request_messages(forest, forest.calls[call_id].started)]


def thinking(room: Any) -> Forest:
    """Two thoughtful turns whose client brings back the words alone, and a third."""
    room.script(
        "<think>\nWell.\n</think>\n\nHello.<|im_end|>", "<think>\nSo.\n</think>\n\nBye.<|im_end|>", "Yes.<|im_end|>"
    )
    agent = room.agent()
    agent.say("Hi")
    hello, bye = ({"role": "assistant", "content": text} for text in ("Hello.", "Bye."))
    agent.say("Hi", hello, "More")
    agent.say("Hi", hello, "More", bye, "Again")
    return room.forest(agent)


def test_each_answer_is_spelled_as_the_client_first_sent_it_back(room: Any) -> None:
    forest = thinking(room)
    u, a = Role.USER, Role.ASSISTANT
    assert told(forest, "c0") == [(u, "Hi", "")]
    assert told(forest, "c2") == [(u, "Hi", ""), (a, "Hello.", ""), (u, "More", ""), (a, "Bye.", ""), (u, "Again", "")]
    held = [(each.text, each.reasoning.strip()) for each in forest.nodes[-1].messages_M if each.role is a]
    assert held == [("Hello.", "Well."), ("Bye.", "So."), ("Yes.", "")]


def test_reasoning_that_a_client_leaves_out_drifts_as_thinking(room: Any, served: Served) -> None:
    forest = thinking(room)
    started = forest.calls["c1"].started
    found = Comparer().difference(served, prompt_of_call(forest, started, prompt_ids(forest, started)))
    assert found is not None
    assert (found.kind, found.wrong) == (DriftKind.THINKING, len(forest.nodes[0].choice.ids_S))


def test_the_text_of_a_prompt_opens_an_answer_and_that_of_a_sequence_ends_with_one(room: Any, served: Served) -> None:
    forest = thinking(room)
    said = conversation_of(forest, forest.calls["c1"].started)
    assert prompt_text(served, said).endswith("<|im_start|>user\nMore<|im_end|>\n<|im_start|>assistant\n")
    assert sequence_text(served, said).endswith("<|im_start|>user\nMore<|im_end|>\n")


def test_an_answer_that_is_continued_is_one_message_left_open(room: Any, served: Served) -> None:
    room.script("One, two<|im_end|>", "Done.<|im_end|>")
    agent = room.agent()
    agent.say("Count", max_tokens=2)
    begun = {"role": "assistant", "content": "One,"}
    second = agent.say("Count", begun, continue_final_message=True, add_generation_prompt=False)
    assert (second.status, second.text) == (200, " two")
    whole = {"role": "assistant", "content": "One, two"}
    assert agent.say("Count", whole, "Go on").text == "Done."
    forest = room.forest(agent)
    assert [text for _, text, _ in told(forest, "c1")] == ["Count", "One,"]
    assert [text for _, text, _ in told(forest, "c2")] == ["Count", "One, two", "Go on"]
    said = conversation_of(forest, forest.calls["c1"].started)
    assert prompt_text(served, said).endswith("One,")
    started = forest.calls["c1"].started
    run = prompt_of_call(forest, started, prompt_ids(forest, started))
    assert run.sampled == 2


def test_a_request_that_builds_on_nothing_is_told_as_it_came(room: Any) -> None:
    room.script("A<|im_end|>")
    agent = room.agent()
    agent.say("Hi", {"role": "assistant", "content": "invented"}, "Ho")
    assert [text for _, text, _ in told(room.forest(agent), "c0")] == ["Hi", "invented", "Ho"]


def test_spans_are_those_of_each_answer_on_a_path(room: Any) -> None:
    forest = thinking(room)
    path = forest.nodes[-1].path()
    ids = forest.nodes[-1].held_T
    assert [ids.slice(start, end) for start, end in sampled_spans(path)] == [node.choice.ids_S for node in path]
    assert isinstance(forest.nodes[-1].message, Message)
