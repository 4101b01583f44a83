"""Chat with the prompt's ids, in bytes that vLLM 0.32.0 sent."""

from __future__ import annotations

import json

import msgspec
import pytest

from turnstile.conversation import NamedTool, ReplyDelta, ToolCallDelta, ToolMode
from turnstile.engines.vllm_chat import Chat, Said, reading, said
from turnstile.engines.vllm_door import Ask, Piece, Scored
from turnstile.generation import Draw

FIRST = (
    b'{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"tiny","choices":[{"index":0,'
    b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":[2,3]}'
)
THOUGHT = (
    b'{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"tiny","choices":[{"index":0,'
    b'"delta":{"reasoning":"Hm"},"logprobs":{"content":[{"token":"token_id:64","logprob":-0.5,"bytes":[97],'
    b'"top_logprobs":[{"token":"token_id:65","logprob":-0.25,"bytes":[98]}]}]},"finish_reason":null,"token_ids":[64]}]}'
)
CALL = (
    b'{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"tool_calls":[{"id":"chatcmpl-tool-9","type":"function",'
    b'"index":0,"function":{"name":"go"}},{"index":0,"function":{"arguments":"{}"}}]},"logprobs":null,'
    b'"finish_reason":"tool_calls","stop_reason":null,"token_ids":[1]}]}'
)


def test_events_bring_ids_and_how_they_read():
    assert [Chat().piece(event) for event in (FIRST, THOUGHT, CALL)] == [
        Piece(echo=[2, 3], request_id="chatcmpl-1"),
        Piece(
            ids=[64],
            scored=[Scored(64, -0.5, ((65, -0.25),))],
            said=ReplyDelta(reasoning="Hm"),
            request_id="chatcmpl-1",
        ),
        Piece(
            ids=[1],
            said=ReplyDelta(calls=(ToolCallDelta(0, "chatcmpl-tool-9", "go"), ToolCallDelta(0, arguments="{}"))),
            finish="tool_calls",
            request_id="chatcmpl-1",
        ),
    ]


def test_nothing_read_is_nothing_said():
    assert said(Said(content="", tool_calls=())) is None


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (ToolMode.AUTO, "auto"),
        (ToolMode.NONE, "none"),
        (NamedTool("go"), {"type": "function", "function": {"name": "go"}}),
    ],
)
def test_the_tools_decide_how_an_answer_is_read(prompt, choice, sent):
    tool = '{"type":"function","function":{"name":"go"}}'
    head = msgspec.structs.replace(prompt([2]).head, tools=(tool,))
    asked = msgspec.structs.replace(prompt([2]), head=head, read_with=choice)
    body = json.loads(Chat().body(Ask(asked, b"2", Draw(max_tokens=500), 5, "m", 100)))
    assert (body["tools"], body["tool_choice"]) == ([json.loads(tool)], sent)
    # Chat refuses more than the context holds, where the other doors stop at its end.
    assert body["max_tokens"] == 99
    assert (body["logprobs"], body["top_logprobs"], body["return_token_ids"]) == (True, 0, True)


def test_without_tools_there_is_nothing_to_choose(prompt):
    how = reading(msgspec.structs.replace(prompt([2]), read_with=ToolMode.AUTO))
    assert json.loads(msgspec.json.encode(how)) == {
        "chat_template_kwargs": {},
        "messages": [{"role": "user", "content": "-"}],
    }
