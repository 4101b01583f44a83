"""Public cases B, parsing of tool calls and reasoning, through the whole server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LS_CALL = '<tool_call>\n{"name":"ls","arguments":{"p":"/a"}}\n</tool_call><|im_end|>'
BROKEN_CALL = '<tool_call>{"name":"search","arguments":{"q": "a" "b"}}</tool_call>'
THINKING = {"chat_template_kwargs": {"enable_thinking": True}}
STREAMS = pytest.mark.parametrize("stream", [False, True])


def calls_of(said: Any) -> list[tuple[str, Any]]:
    calls = said.message.get("tool_calls", [])
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]


@pytest.mark.parametrize(
    ("answer", "choice", "unclosed"),
    [
        (f"I will list.\n{LS_CALL}", "auto", 1),
        (f"I will list.\n</think>\n\n{LS_CALL}", "auto", 0),
        # A grammar's answer comes in one piece: the whole call is one delta.
        (f"I will list.\n</think>\n\n{LS_CALL}", "required", 0),
    ],
    ids=["in unclosed thinking", "after thinking", "in one delta"],
)
def test_case_b1_a_call_is_delivered_and_its_ids_are_stored_as_they_were_sampled(
    wired: Callable[..., Any], wires: Any, answer: str, choice: str, unclosed: int, tmp_path: Path
) -> None:
    room = wired("qwq-32b")
    ls = wires.tool("ls", p="string")
    said = []
    for stream in (False, True):
        answer_ids, last_ids = room.script(answer, "Found it.\n</think>\n\nb<|im_end|>")
        agent = room.agent()
        first = agent.say("go", tools=[ls], tool_choice=choice, stream=stream, **THINKING)
        call_id = first.message["tool_calls"][0]["id"]
        second = agent.say("go", first.message, wires.tool_result(call_id, "b"), tools=[ls], stream=stream, **THINKING)

        assert room.text(first.prompt).endswith("<think>\n")
        assert calls_of(first) == [("ls", {"p": "/a"})]
        assert second.history == "spliced"
        assert second.prompt[: len(first.prompt) + len(answer_ids)] == first.prompt + answer_ids
        assert agent.summary["notes"].get("reasoning_unclosed", 0) == unclosed
        (sequence,) = agent.exported(tmp_path).sequences
        assert wires.sampled(sequence) == [answer_ids, last_ids]
        said.append((first.message["reasoning_content"], calls_of(first), first.finish_reason, second.message))
    assert said[0] == said[1] == ("I will list.", [("ls", {"p": "/a"})], "tool_calls", second.message)


def test_case_b1_a_marker_without_a_call_is_noted_and_the_text_is_seen(wired: Callable[..., Any], wires: Any) -> None:
    room = wired("qwen3")
    room.script("<tool_call>\nno, rather not.<|im_end|>")
    agent = room.agent()
    first = agent.say("go", tools=[wires.tool("ls", p="string")])
    assert first.text == "<tool_call>\nno, rather not."
    noted = agent.summary["notes"]
    assert noted.get("tool_section_without_call", 0) + noted.get("tool_json_invalid", 0) == 1


@STREAMS
def test_case_b2_a_failed_parse_gives_the_raw_text_and_the_record_says_so(
    wired: Callable[..., Any], wires: Any, stream: bool, tmp_path: Path
) -> None:
    room = wired("qwen3")
    raw = '<tool_call>{"name":"grep","arguments":{"q": }}</tool_call>'
    answer_ids, _ = room.script(f"{raw}<|im_end|>", "OK<|im_end|>")
    grep = wires.tool("grep", q="string")
    agent = room.agent()

    first = agent.say("go", tools=[grep], stream=stream)
    second = agent.say("go", {"role": "assistant", "content": raw}, "Mind the JSON.", tools=[grep], stream=stream)

    assert (first.text, first.finish_reason, first.message.get("tool_calls")) == (raw, "stop", None)
    assert second.history == "spliced"
    assert second.prompt[: len(first.prompt) + len(answer_ids)] == first.prompt + answer_ids
    assert agent.summary["notes"] == {"tool_json_invalid": 1, "normalised:call_as_text": 1}
    (sequence,) = agent.exported(tmp_path).sequences
    assert wires.sampled(sequence)[0] == answer_ids


@STREAMS
def test_case_b3_whitespace_that_our_parser_removed_is_kept_in_ids_and_forgiven_in_matching(
    wired: Callable[..., Any], stream: bool
) -> None:
    room = wired("qwen3")
    answer_ids, *_ = room.script("<think>\nplan \n</think>\n\n OK \n<|im_end|>", "Yes<|im_end|>", "No<|im_end|>")
    sent = {"role": "assistant", "reasoning_content": "plan", "content": "OK"}
    agent = room.agent()

    first = agent.say("go", stream=stream)
    second = agent.say("go", sent, "sure?", stream=stream)
    edited = agent.say("go", {**sent, "content": "O K"}, "sure?", stream=stream)

    assert (first.message["reasoning_content"].strip(), first.text.strip()) == ("plan", "OK")
    assert second.history == "spliced"
    assert second.prompt[: len(first.prompt) + len(answer_ids)] == first.prompt + answer_ids
    assert agent.summary["notes"]["normalised:parser_trim"] == 1
    assert edited.history == "forked:assistant_edited"


def test_case_b4_a_held_malformed_call_is_not_rendered_again(wired: Callable[..., Any], wires: Any) -> None:
    room = wired("qwen3-coder")
    answer_ids, *_ = room.script(f"{BROKEN_CALL}<|im_end|>", "OK<|im_end|>")
    search = wires.tool("search", q="string")
    agent = room.agent()

    first = agent.say("find", tools=[search])
    second = agent.say("find", first.message, "arguments were not valid JSON", tools=[search], stream=True)

    assert first.text == BROKEN_CALL
    assert (second.status, second.history) == (200, "spliced")
    assert second.prompt[: len(first.prompt) + len(answer_ids)] == first.prompt + answer_ids


@STREAMS
def test_case_b4_a_call_that_cannot_be_rendered_is_refused_and_the_rollout_stays_usable(
    wired: Callable[..., Any], wires: Any, stream: bool
) -> None:
    room = wired("qwen3-coder")
    search = wires.tool("search", q="string")

    def called(arguments: str) -> dict[str, Any]:
        function = {"name": "search", "arguments": arguments}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        }

    agent = room.agent()
    result = wires.tool_result("c1", "nothing")
    asked = {"tools": [search], "stream": stream}
    poisoned = agent.say("find", called('{"q": "a" "b"}'), result, **asked)
    room.script("replaced<|im_end|>", "dropped<|im_end|>")
    replaced = agent.say("find", called('{"q": "a"}'), result, **asked)
    dropped = agent.say("find", **asked)

    assert (poisoned.status, poisoned.error["code"], poisoned.prompts) == (400, "render_failed", 0)
    assert "arguments" in poisoned.error["message"]
    assert (replaced.text, dropped.text) == ("replaced", "dropped")
    # The string was rendered as the object that it holds.
    assert "<parameter=q>\na\n</parameter>" in room.text(replaced.prompt)
    assert agent.summary["failed_calls"] == {"render_failed": 1}
