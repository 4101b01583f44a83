from __future__ import annotations

import json

import msgspec
import pytest

from turnstile.conversation import ReplyDelta, ToolCallDelta, ToolMode, Usage
from turnstile.engines.sglang_reading import reading_of, text_of
from turnstile.engines.sglang_shapes import ModelInfo
from turnstile.engines.wire import WireAnswer
from turnstile.errors import EngineError
from turnstile.generation import Draw, Finish, Generation, LogprobsMode
from turnstile.tokens import IdRun, LogprobRun

TOOL = '{"type":"function","function":{"name":"look"}}'


class Server:
    """Answers both routes and remembers what it was asked."""

    def __init__(self, separated=None, parsed=None, status=200):
        self.answers = {"/separate_reasoning": separated, "/parse_function_call": parsed}
        self.status = status
        self.asked = []

    async def __call__(self, path, body):
        self.asked.append((path, json.loads(body)))
        return WireAnswer(self.status, json.dumps(self.answers[path]).encode())


@pytest.fixture
def with_tool(prompt):
    asked = prompt([10])
    return msgspec.structs.replace(
        asked, head=msgspec.structs.replace(asked.head, tools=(TOOL,)), read_with=ToolMode.AUTO
    )


def model(reasoning="r", calls="c"):
    return ModelInfo("path", True, reasoning_parser=reasoning, tool_call_parser=calls)


async def test_reasoning_is_separated_before_calls_are_parsed(with_tool):
    server = Server(
        {"reasoning_text": "hm", "text": "text CALL"},
        {"normal_text": "text ", "calls": [{"tool_index": 0, "name": "look", "parameters": '{"a":1}'}]},
    )
    said = await reading_of(server, model(), with_tool, "<think>hm</think>text CALL")
    assert said == ReplyDelta(
        reasoning="hm", content="text ", calls=(ToolCallDelta(0, name="look", arguments='{"a":1}'),)
    )
    assert server.asked == [
        ("/separate_reasoning", {"text": "<think>hm</think>text CALL", "reasoning_parser": "r"}),
        ("/parse_function_call", {"text": "text CALL", "tools": [json.loads(TOOL)], "tool_call_parser": "c"}),
    ]


async def test_two_calls_of_one_tool_are_two_calls(with_tool):
    # The server's own indices name the tool, not the call.
    calls = [{"tool_index": 0, "name": "look", "parameters": "{}"}] * 2
    said = await reading_of(Server(parsed={"normal_text": "", "calls": calls}), model(None), with_tool, "x")
    assert [call.index for call in said.calls] == [0, 1]


async def test_nothing_is_asked_for_that_cannot_be_there(with_tool, prompt):
    server = Server()
    closed = msgspec.structs.replace(with_tool, read_with=ToolMode.NONE)
    assert await reading_of(server, model(None), closed, "CALL") == ReplyDelta(content="CALL")
    assert await reading_of(server, model(None, None), with_tool, "CALL") == ReplyDelta(content="CALL")
    assert await reading_of(server, model(None), prompt([10]), "CALL") == ReplyDelta(content="CALL")
    assert server.asked == []


async def test_a_call_without_a_name_is_refused(with_tool):
    server = Server(parsed={"normal_text": "", "calls": [{"tool_index": 0, "name": None, "parameters": "{}"}]})
    with pytest.raises(EngineError, match="has one without a name"):
        await reading_of(server, model(None), with_tool, "x")


async def test_a_parser_that_fails_is_a_refusal(with_tool):
    with pytest.raises(EngineError, match="status 500"):
        await reading_of(Server("oops", "oops", 500), model(), with_tool, "x")


@pytest.mark.parametrize(
    ("ids", "stop_string", "text"),
    [([1], "", ""), ([0, "a", 1], "", "<s>a"), (["a", "b"], "", "ab"), (["a", "b"], "b", "a")],
)
def test_the_text_of_an_answer_has_its_control_tokens_and_not_its_stop(vocabulary, ids, stop_string, text):
    spelled = [vocabulary.spell(each)[0] if isinstance(each, str) else each for each in ids]
    generation = Generation(
        IdRun.of(spelled), LogprobRun(), Finish.STOP, "", Usage(1, 1), LogprobsMode.RAW, 1.0, stop_string
    )
    assert text_of(generation, Draw(stop_ids=frozenset({1})), vocabulary) == text
