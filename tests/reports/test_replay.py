"""Recorded requests through the pipeline again: the same ids, or what would have come of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstile.conversation import Ending, ToolMode
from turnstile.generation import Forked, Retention, Root
from turnstile.history.forest import Forest
from turnstile.journal import CallStarted, Record
from turnstile.parsing.formats import detect
from turnstile.reports.drift_sources import prompt_ids
from turnstile.reports.replay import Replayed, ReplayModel, Setting, call_of, replay
from turnstile.server.local_files import read_model_folder
from turnstile.store import Reader
from turnstile.templates.facts import serve


def quiet(_done: int, _total: int) -> None:
    """Show no progress."""


@pytest.fixture
def model(tools_folder: Path) -> ReplayModel:
    files = read_model_folder(tools_folder)
    return ReplayModel(serve(files, model="m", stop_ids=frozenset()), detect(files.chat_template))


@pytest.fixture
def again(model: ReplayModel) -> Callable[..., Replayed]:
    """Replays records with the model that they were recorded with, or with what is given."""

    def again(records: list[Record], **changes: Any) -> Replayed:
        setting = Setting(lambda _head: model, None, quiet)
        return asyncio.run(replay(records, msgspec.structs.replace(setting, **changes)))

    return again


def records_of(room: Any, agent: Any) -> list[Record]:
    with Reader.open(room.store) as reader:
        return list(reader.records(agent.handle.rollout_id))


def prompts(forest: Forest) -> dict[str, list[int]]:
    return {call_id: prompt_ids(forest, state.started).tolist() for call_id, state in forest.calls.items()}


def answers(forest: Forest) -> list[Any]:
    return [
        (node.ref, node.choice.ids_S, node.message, node.choice.finish, node.choice.incomplete) for node in forest.nodes
    ]


def assert_equal(replayed: Replayed) -> None:
    assert replayed.refused == {}
    assert prompts(replayed.now) == prompts(replayed.then)
    assert answers(replayed.now) == answers(replayed.then)
    now, then = ([state.started.history for state in each.calls.values()] for each in (replayed.now, replayed.then))
    assert now == then


def test_turns_with_tool_calls_come_out_with_the_recorded_ids(left: Any, reader: Reader, again: Any) -> None:
    assert_equal(again(list(reader.records(left.rollout_id))))


def test_forks_choices_prefills_and_edits_come_out_as_recorded(wired: Callable[..., Any], again: Any) -> None:
    room = wired()
    texts = ("One.", "Two.", "Three", " and four", "Five.", "Six.", "Seven.")
    room.script(*[f"{text}<|im_end|>" for text in texts])
    agent = room.agent()
    first = agent.say("Hi", n=2)
    begun = {"role": "assistant", "content": agent.say("Hi", first.message, "More").text}
    agent.say("Hi", first.message, "More", begun, continue_final_message=True, add_generation_prompt=False)
    agent.say("Hi", first.message, "More", begun)
    agent.say("Hi", first.message, "Edited")
    agent.say("Anew")
    replayed = again(records_of(room, agent))
    assert_equal(replayed)
    assert len({type(state.started.history) for state in replayed.now.calls.values()}) >= 2


def test_an_answer_that_came_back_in_another_spelling_is_found_again(
    wired: Callable[..., Any], wires: Any, again: Any
) -> None:
    room = wired()
    room.script('<tool_call>\n{"name": "ls", "arguments": {"b":1,"a":2}}\n</tool_call><|im_end|>', "Done.<|im_end|>")
    agent = room.agent()
    tools = [wires.tool("ls", a="integer", b="integer")]
    first = agent.say("Hi", tools=tools)
    call = first.message["tool_calls"][0]
    call["function"]["arguments"] = '{"a": 2.0, "b": 1}'
    agent.say(
        "Hi",
        {"role": "assistant", "content": None, "tool_calls": [call]},
        wires.tool_result(call["id"], "x"),
        tools=tools,
    )
    records = records_of(room, agent)
    (_, second) = [each for each in records if isinstance(each, CallStarted)]
    assert second.echoed is not None and second.echoed.calls[0].arguments == '{"a": 2.0, "b": 1}'
    assert_equal(again(records))


def test_calls_that_met_each_other_are_planned_in_their_recorded_order(wired: Callable[..., Any], again: Any) -> None:
    room = wired()
    room.script(*[f"Answer {number}.<|im_end|>" for number in range(4)])
    agent = room.agent()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: agent.say("Hi"), range(4)))
    assert_equal(again(records_of(room, agent)))


def test_a_failed_call_is_planned_and_fails_again(wired: Callable[..., Any], again: Any) -> None:
    room = wired()
    agent = room.agent()
    with room.engine_down():
        assert agent.say("Hi").status >= 500
    room.script("A<|im_end|>")
    agent.say("Hi")
    records = records_of(room, agent)
    replayed = again(records)
    assert prompts(replayed.now) == prompts(replayed.then)


def test_an_answer_that_broke_off_is_gone_on_from_again(
    wired: Callable[..., Any], wires: Any, fakes: Any, speaking: Any, again: Any
) -> None:
    room = wired()
    agent = room.agent()
    tools = [wires.tool("ls", p="string")]
    call = '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call>'
    ids = room.ids(f"Look.\n{call}\n<tool_call>{'word ' * 100}<|im_end|>")
    speaking.broken_behind(room, fakes, ids, len(room.ids(f"Look.\n{call}")))
    first = agent.say("go", tools=tools, stream=True)
    room.script("Done.<|im_end|>")
    result = wires.tool_result(first.message["tool_calls"][0]["id"], "b")
    second = agent.say("go", first.message, result, tools=tools)
    assert (first.ended, second.history) == (False, "spliced")
    assert_equal(again(records_of(room, agent)))
    assert room.get(f"/rollouts/{agent.handle.rollout_id}/drift")["calls"] == 1


def test_a_record_that_breaks_off_leaves_its_call_open(left: Any, reader: Reader, again: Any) -> None:
    records = list(reader.records(left.rollout_id))
    at = max(number for number, each in enumerate(records) if isinstance(each, CallStarted))
    replayed = again(records[: at + 1])
    assert prompts(replayed.now) == prompts(replayed.then)
    assert len(replayed.then.nodes) == len(replayed.now.nodes) == 2


def test_another_template_says_what_would_have_happened(
    left: Any, reader: Reader, again: Any, tools_folder: Path
) -> None:
    files = read_model_folder(tools_folder)
    tampered = files.chat_template.replace("<tool_response>", "<tool_result>")
    assert tampered != files.chat_template
    other = serve(msgspec.structs.replace(files, chat_template=tampered), model="m")
    replayed = again(
        list(reader.records(left.rollout_id)), model=lambda _: ReplayModel(other, detect(files.chat_template))
    )
    then, now = prompts(replayed.then), prompts(replayed.now)
    assert [then[call_id] == now[call_id] for call_id in then] == [True, True, False]
    assert "<tool_result>" in other.tokenizer.decode(prompt_ids(replayed.now, replayed.now.calls["c2"].started))
    assert answers(replayed.now) == answers(replayed.then)


def test_a_request_that_a_template_refuses_is_named_and_the_rest_goes_on(
    left: Any, reader: Reader, again: Any, tools_folder: Path
) -> None:
    files = read_model_folder(tools_folder)
    strict = "{% if messages|length > 1 %}{{ raise_exception('one at a time') }}{% endif %}" + files.chat_template
    other = serve(msgspec.structs.replace(files, chat_template=strict), model="m")
    replayed = again(
        list(reader.records(left.rollout_id)), model=lambda _: ReplayModel(other, detect(files.chat_template))
    )
    assert set(replayed.refused) == {"c1", "c2"}
    assert "one at a time" in str(replayed.refused["c1"])
    assert list(replayed.now.calls) == ["c0"]


def test_another_policy_is_the_one_that_the_replay_begins_with(left: Any, reader: Reader, again: Any) -> None:
    replayed = again(list(reader.records(left.rollout_id)), retention=Retention.TEMPLATE)
    assert replayed.now.opened is not None
    assert replayed.now.opened.retention is Retention.TEMPLATE
    histories = [type(state.started.history) for state in replayed.now.calls.values()]
    # The template writes the call in another spelling, so it is forked off what was sampled.
    assert (histories[0], histories[2]) == (Root, Forked)


def test_progress_is_told_record_by_record(left: Any, reader: Reader, again: Any) -> None:
    told: list[tuple[int, int]] = []
    records = list(reader.records(left.rollout_id))
    again(records, show=lambda done, total: told.append((done, total)))
    assert told == [(done, len(records)) for done in range(1, len(records) + 1)]


def test_a_request_is_put_together_from_head_path_and_record(left: Any, reader: Reader) -> None:
    forest = Forest.of(reader.records(left.rollout_id))
    call = call_of(forest, forest.calls["c2"].started)
    assert [message.role.value for message in call.messages] == ["user", "assistant", "user", "assistant", "tool"]
    assert ([tool.name for tool in call.tools], call.tool_choice, call.ending) == (["ls"], ToolMode.AUTO, Ending.ANSWER)


def test_nothing_is_no_rollout_to_replay(again: Any) -> None:
    with pytest.raises(ValueError, match="begin no rollout"):
        again([])
