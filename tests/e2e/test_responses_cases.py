"""Public cases as only OpenAI Responses has them, through the whole server; more: `test_cases_in_every_dialect.py`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

STREAMS = pytest.mark.parametrize("stream", [False, True])
CALL = '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call>'
CALL_B = '<tool_call>\n{"name": "ls", "arguments": {"p": "/b"}}\n</tool_call>'
DUCK = "\N{DUCK}"


@pytest.fixture
def room(wired: Callable[..., Any]) -> Any:
    return wired("qwen3")


@pytest.fixture
def agent(room: Any, responding: Any) -> Any:
    return responding.Responder(room.agent())


def continues(second: Any, first: Any, answer_ids: list[int]) -> bool:
    return second.prompt[: len(first.prompt) + len(answer_ids)] == first.prompt + answer_ids


def notes(room: Any, agent: Any, said: Any) -> list[str]:
    started = room.forest(agent.agent).calls[said.call_id].started
    return [note.code.value for note in started.notes]


@pytest.mark.parametrize(
    ("sent", "history"),
    [
        ([{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "R"}]}], "spliced"),
        ([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "R"}], "content": None}], "spliced"),
        ([{"type": "reasoning", "summary": []}], "spliced"),
        ([], "spliced"),
        ([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "R changed"}]}],
         "forked:assistant_edited"),
    ],
    ids=["content", "summary", "empty", "absent", "changed"],
)  # fmt: skip
def test_case_c2_reasoning_is_kept_whatever_the_client_does_with_it_and_a_change_forks(
    room: Any, agent: Any, sent: list[dict[str, Any]], history: str
) -> None:
    answer_ids, _ = room.script("<think>\nR\n</think>\n\nA<|im_end|>", "B<|im_end|>")
    first = agent.say("q")
    second = agent.say("q", *sent, {"role": "assistant", "content": "A"}, "more")
    assert second.history == history
    assert continues(second, first, answer_ids) is (history == "spliced")


def test_case_c6_sub_agents_with_other_instructions_are_roots_that_do_not_disturb_each_other(
    room: Any, agent: Any, responding: Any
) -> None:
    room.script("A1<|im_end|>", "X1<|im_end|>", "A2<|im_end|>", "X2<|im_end|>")
    main = agent.say("u1", instructions="S1")
    sub = agent.say("x", instructions="S2")
    main_next = agent.say("t1", instructions="S1", previous_response_id=responding.response(main)["id"])
    sub_next = agent.say("x", *responding.items(sub), "t2", instructions="S2")
    assert [each.history for each in (main, sub, main_next, sub_next)] == ["root", "root", "spliced", "spliced"]


def test_case_e1_reasoning_text_and_calls_are_items_in_their_order_streamed_and_whole(
    room: Any, agent: Any, responding: Any
) -> None:
    ls = responding.tool("ls", p="string")
    shapes: list[Any] = []
    for stream in (False, True):
        room.script(f"<think>\nr\n</think>\n\nHi\n{CALL}\n done<|im_end|>")
        said = agent.say("go", tools=[ls], stream=stream)
        shapes.append([
            (item["type"], item.get("arguments") or "".join(part["text"] for part in item.get("content") or []))
            for item in responding.items(said)
        ])  # fmt: skip
    assert shapes[0] == shapes[1]
    assert [kind for kind, _ in shapes[0]] == ["reasoning", "message", "function_call", "message"]
    assert json.loads(shapes[0][2][1]) == {"p": "/a"}
    assert [text.strip() for _, text in (shapes[0][1], shapes[0][3])] == ["Hi", "done"]


def test_case_e1_every_item_of_a_stream_is_begun_filled_and_ended_in_order(
    room: Any, agent: Any, responding: Any
) -> None:
    room.script(f"<think>\nr\n</think>\n\nHi\n{CALL}<|im_end|>")
    said = agent.say("go", tools=[responding.tool("ls", p="string")], stream=True)
    assert responding.names(said) == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    assert [event["sequence_number"] for event in said.events] == list(range(len(said.events)))
    assert [event["item"] for event in said.events if event["type"].endswith("item.done")] == responding.items(said)


@STREAMS
def test_case_e2_an_engine_that_breaks_in_mid_answer_ends_in_a_failure_and_never_completed(
    room: Any, agent: Any, fakes: Any, stream: bool
) -> None:
    room.script("one two three four five six seven<|im_end|>")
    room.fake.faults.extend([fakes.Fault.SLOW, fakes.Fault.NOT_JSON])
    broken = agent.say("count", stream=stream)
    if not stream:
        assert (broken.status, broken.error["code"], broken.error["type"]) == (502, "engine_broken", "server_error")
        return
    error, failed = broken.events[-2:]
    assert (error["type"], error["code"]) == ("error", "engine_broken")
    assert (failed["type"], failed["response"]["status"], failed["response"]["error"]["code"]) == (
        "response.failed", "failed", "server_error",
    )  # fmt: skip
    assert not [event for event in broken.events if event["type"] == "response.completed"]
    (state,) = room.forest(agent.agent).calls.values()
    assert len(state.failed.partial_S) > 0


@STREAMS
def test_case_e3_what_was_not_asked_for_does_not_leak(room: Any, agent: Any, responding: Any, stream: bool) -> None:
    room.script("<think>\nr\n</think>\n\nHi<|im_end|>")
    said = agent.say("go", stream=stream)
    reasoning, message = responding.items(said)
    assert "encrypted_content" not in reasoning
    assert message["content"][0]["logprobs"] == []


@STREAMS
def test_log_probabilities_come_where_they_are_included(room: Any, agent: Any, responding: Any, stream: bool) -> None:
    (ids,) = room.script("Hi there<|im_end|>")
    said = agent.say("go", stream=stream, include=["message.output_text.logprobs"], top_logprobs=1)
    (message,) = responding.items(said)
    shown = message["content"][0]["logprobs"]
    assert [entry["token"] for entry in shown] == [room.text([each]) for each in ids[: len(shown)]]
    assert "".join(entry["token"] for entry in shown) == "Hi there"
    assert [entry["logprob"] for entry in shown] == pytest.approx(
        [room.fake.logprob(each) for each in ids[: len(shown)]], abs=1e-4
    )


def test_case_e4_silence_is_bridged_by_comments_and_a_late_error_is_an_event(
    wire_up: Callable[..., Any], tools_folder: Path, wires: Any, responding: Any, fakes: Any
) -> None:
    with wire_up(tools_folder, ["<|im_end|>"], keep_alive_s=0.05) as room:
        agent = responding.Responder(room.agent())
        room.script("Hi<|im_end|>")
        room.fake.slow_s = 0.3
        room.fake.faults.append(fakes.Fault.SLOW)
        said = agent.say("go", stream=True)
        assert said.body.startswith(b": keep-alive\n\n")
        assert responding.texts(said) == "Hi"
        assert said.prompts == 1


@pytest.mark.parametrize("variant", ["all items", "no reasoning", "foreign blob", "previous_response_id", "references"])
def test_case_j4_turn_two_is_spliced_whatever_of_turn_one_the_client_carries(
    room: Any, agent: Any, responding: Any, variant: str
) -> None:
    ls = responding.tool("ls", p="string")
    asked: dict[str, Any] = {"tools": [ls], "include": ["reasoning.encrypted_content"], "stream": True}
    if variant not in {"previous_response_id", "references"}:
        asked["store"] = False
    answer_ids, _ = room.script(f"<think>\nR\n</think>\n\n{CALL}<|im_end|>", "done<|im_end|>")
    first = agent.say("go", **asked)
    reasoning, *_, call = responding.items(first)
    result = responding.output(call, "b")
    bare = {"type": "reasoning", "id": reasoning["id"], "summary": [], "encrypted_content": "gAAAA-foreign"}
    sent: dict[str, list[Any]] = {
        "all items": ["go", {**bare, "encrypted_content": reasoning["encrypted_content"]}, call, result],
        "no reasoning": ["go", call, result],
        "foreign blob": ["go", bare, call, result],
        "previous_response_id": [result],
        "references": ["go", *({"type": "item_reference", "id": each["id"]} for each in (reasoning, call)), result],
    }
    if variant == "previous_response_id":
        asked["previous_response_id"] = responding.response(first)["id"]
    second = agent.say(*sent[variant], **asked)
    assert second.history == "spliced"
    assert continues(second, first, answer_ids)
    assert ("reasoning_blob_unknown" in notes(room, agent, second)) is (variant == "foreign blob")


def test_case_j4_items_have_the_same_ids_in_deltas_when_done_and_in_the_end(
    room: Any, agent: Any, responding: Any
) -> None:
    room.script(f"<think>\nR\n</think>\n\nHi\n{CALL}<|im_end|>")
    said = agent.say("go", tools=[responding.tool("ls", p="string")], stream=True)
    final = {item["id"] for item in responding.items(said)}
    assert {event["item_id"] for event in said.events if "item_id" in event} == final
    assert {event["item"]["id"] for event in said.events if "item" in event} == final


@pytest.mark.parametrize("named", ["resp_r-c7", "resp_x", "nonsense", "private", "chat"])
def test_case_j4_a_response_that_is_not_held_cannot_be_continued(
    room: Any, agent: Any, responding: Any, named: str
) -> None:
    if named == "private":
        room.script("A<|im_end|>")
        named = responding.response(agent.say("q", store=False))["id"]
    elif named == "chat":
        room.script("A<|im_end|>")
        chat = room.http.post(
            f"{agent.agent.handle.openai_base_url}/chat/completions",
            json={"model": "m", "messages": [{"role": "user", "content": "q"}]},
        )
        named = chat.json()["id"].replace("chatcmpl-", "resp_")
    refused = agent.say("more", previous_response_id=named)
    assert (refused.status, refused.error["code"], refused.error["param"]) == (
        400, "previous_response_not_found", "previous_response_id",
    )  # fmt: skip


def test_case_j4_instructions_hold_for_one_response_and_are_not_inherited(
    room: Any, agent: Any, responding: Any
) -> None:
    room.script("A<|im_end|>", "B<|im_end|>", "C<|im_end|>")
    first = agent.say("q", instructions="Be a pirate.")
    second = agent.say("more", previous_response_id=responding.response(first)["id"])
    third = agent.say("yet more", instructions="Be a poet.", previous_response_id=responding.response(second)["id"])
    assert "pirate" not in room.text(second.prompt)
    text = room.text(third.prompt)
    assert ("poet" in text, "pirate" in text) == (True, False)
    assert text.index("Be a poet.") < text.index("q") < text.index("A") < text.index("yet more")


@STREAMS
def test_a_custom_tool_is_called_with_its_text_and_the_call_comes_back_as_it_went(
    room: Any, agent: Any, responding: Any, stream: bool
) -> None:
    patch = {"type": "custom", "name": "apply_patch", "description": "Edit"}
    text = '*** Begin Patch\n+"x"\n*** End Patch\n'
    call_of = {"name": "apply_patch", "arguments": {"input": text}}
    ids, _ = room.script(f"<tool_call>\n{json.dumps(call_of)}\n</tool_call><|im_end|>", "ok<|im_end|>")
    first = agent.say("go", tools=[patch], stream=stream)
    (call,) = responding.items(first)
    second = agent.say("go", call, responding.output(call, "done"), tools=[patch], stream=stream)
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "apply_patch", text)
    assert second.history == "spliced"
    assert continues(second, first, ids)
    if stream:
        done = [event for event in first.events if event["type"] == "response.custom_tool_call_input.done"]
        assert [event["input"] for event in done] == [text]


def test_a_custom_call_without_the_object_that_was_asked_for_is_handed_out_as_written_and_comes_back(
    room: Any, agent: Any, responding: Any
) -> None:
    patch = {"type": "custom", "name": "apply_patch"}
    ids, _ = room.script(
        '<tool_call>\n{"name": "apply_patch", "arguments": {"patch": "x"}}\n</tool_call><|im_end|>', "ok<|im_end|>"
    )
    first = agent.say("go", tools=[patch])
    (call,) = responding.items(first)
    second = agent.say("go", call, responding.output(call, "what?"), tools=[patch])
    assert json.loads(call["input"]) == {"patch": "x"}
    assert second.history == "spliced"
    assert continues(second, first, ids)


def test_a_call_in_a_namespace_goes_out_and_comes_back_under_its_own_name(
    room: Any, agent: Any, responding: Any
) -> None:
    space = {
        "type": "namespace",
        "name": "agents",
        "description": "d",
        "tools": [responding.tool("spawn", task="string")],
    }
    ids, _ = room.script(
        '<tool_call>\n{"name": "agents__spawn", "arguments": {"task": "x"}}\n</tool_call><|im_end|>', "ok<|im_end|>"
    )
    first = agent.say("go", tools=[space])
    (call,) = responding.items(first)
    second = agent.say("go", call, responding.output(call, "started"), tools=[space])
    assert (call["name"], call["namespace"]) == ("spawn", "agents")
    assert second.history == "spliced"
    assert continues(second, first, ids)


def test_an_answer_at_the_limit_is_incomplete_streamed_and_whole(room: Any, agent: Any, responding: Any) -> None:
    for stream in (False, True):
        room.script("one two three four five<|im_end|>")
        said = agent.say("count", max_output_tokens=2, stream=stream)
        answer = responding.response(said)
        assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert answer["output"][-1]["status"] == "incomplete"
        assert not stream or said.events[-1]["type"] == "response.incomplete"


def test_an_answer_without_a_word_is_an_empty_message_that_comes_back(room: Any, agent: Any, responding: Any) -> None:
    ids, _ = room.script("<|im_end|>", "b<|im_end|>")
    first = agent.say("go")
    second = agent.say("go", *responding.items(first), "more")
    assert [item["type"] for item in responding.items(first)] == ["message"]
    assert second.history == "spliced"
    assert continues(second, first, ids)


def test_ids_of_items_tell_equal_answers_apart(room: Any, agent: Any, responding: Any) -> None:
    first_ids, second_ids, _, _ = room.script(
        "<think>\none\n</think>\n\nyes<|im_end|>", "<think>\ntwo\n</think>\n\nyes<|im_end|>",
        "a<|im_end|>", "b<|im_end|>",
    )  # fmt: skip
    first, second = agent.say("q"), agent.say("q")
    for said, ids in ((first, first_ids), (second, second_ids)):
        message = responding.items(said)[-1]
        went_on = agent.say("q", message, "more")
        assert went_on.history in {"spliced", "forked:rewound"}
        assert continues(went_on, said, ids)


def test_a_delivered_answer_is_given_again_to_a_marked_retry_under_the_same_ids(room: Any, agent: Any) -> None:
    room.script("A<|im_end|>")
    first = agent.say("go", stream=True)
    again = agent.say("go", stream=True, headers={"x-stainless-retry-count": "1"})
    assert (again.call_id, again.prompts) == (first.call_id, 0)
    assert again.events[-1]["response"]["output"] == first.events[-1]["response"]["output"]


def test_what_codex_sends_is_served_and_what_it_offers_unasked_is_noted(room: Any, agent: Any, responding: Any) -> None:
    codex = {"originator": "codex_exec", "session-id": "t", "accept": "text/event-stream"}
    developer = {
        "type": "message",
        "id": "msg_1",
        "role": "developer",
        "content": [{"type": "input_text", "text": "Base"}],
    }
    asked: dict[str, Any] = {
        "stream": True, "store": False, "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"},
        "tool_choice": "auto", "parallel_tool_calls": True, "prompt_cache_key": "t", "client_metadata": {"x": "y"},
        "tools": [responding.tool("ls", p="string"), {"type": "web_search", "external_web_access": False}],
        "headers": codex,
    }  # fmt: skip
    ids, _ = room.script(f"<think>\nR\n</think>\n\nHi\n{CALL}<|im_end|>", "done<|im_end|>")
    first = agent.say(developer, "go", **asked)
    reasoning, message, call = responding.items(first)
    # Codex writes `content: null` where a reasoning item has only a summary, and gives outputs an id of its own.
    back = [{**reasoning, "content": None}, message, call, {**responding.output(call, "x"), "id": "fco_1"}]
    second = agent.say(developer, "go", *back, **asked)
    assert (reasoning["summary"], "content" in reasoning) == ([{"type": "summary_text", "text": "R"}], False)
    assert second.history == "spliced"
    assert continues(second, first, ids)
    assert "unknown_fields" in notes(room, agent, second)


@pytest.mark.parametrize("first_speaks", ["chat", "responses"])
def test_a_conversation_goes_on_in_openais_other_dialect_with_the_same_ids(
    room: Any, responding: Any, wires: Any, first_speaks: str
) -> None:
    ls = responding.tool("ls", p="string")
    chat_ls = wires.tool("ls", p="string")
    answers = [f"<think>\nR\n</think>\n\nLook.\n{CALL}\n{CALL_B}<|im_end|>", "Both seen.<|im_end|>", "Bye.<|im_end|>"]
    chat = room.agent()
    responder = responding.Responder(type(chat)(room, chat.handle, room.http))
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}]
    said: list[Any] = ["go"]
    prompts = []
    for turn, text in enumerate(answers):
        (ids,) = room.script(text)
        if (turn % 2 == 0) is (first_speaks == "chat"):
            answer = chat.say(*messages, tools=[chat_ls])
            message = answer.message
            calls = [(call["id"], call["function"]) for call in message.get("tool_calls", [])]
            items = [{"role": "assistant", "content": message.get("content", "")}] + [
                {"type": "function_call", "call_id": call_id, **function} for call_id, function in calls
            ]
        else:
            answer = responder.say(*said, instructions="Be brief.", tools=[ls])
            items = responding.items(answer)
            calls = [
                (item["call_id"], {"name": item["name"], "arguments": item["arguments"]})
                for item in items
                if item["type"] == "function_call"
            ]
            message = {"role": "assistant", "content": responding.texts(answer)}
            if calls:
                message["tool_calls"] = [{"id": each, "type": "function", "function": called} for each, called in calls]
        results = [wires.tool_result(call_id, f"seen {at}") for at, (call_id, _) in enumerate(calls)]
        messages += [message, *(results or [wires.user("more")])]
        outputs = [
            {"type": "function_call_output", "call_id": each["tool_call_id"], "output": each["content"]}
            for each in results
        ]
        said += [*items, *(outputs or [wires.user("more")])]
        prompts.append((answer.history, answer.prompt, ids))
    assert [history for history, _, _ in prompts] == ["root", "spliced", "spliced"]
    for (_, before, ids), (_, after, _) in itertools.pairwise(prompts):
        assert after[: len(before) + len(ids)] == before + ids
