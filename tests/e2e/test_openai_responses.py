"""The official `openai` SDK's Responses API, unmodified, against a real model behind Turnstile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from turnstile.client import Client, RolloutHandle

pytestmark = pytest.mark.engine

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city",
    "strict": False,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture
def rollout(turnstile: Client) -> Iterator[RolloutHandle]:
    with turnstile.rollout() as handle:
        yield handle
        handle.finish()


@pytest.fixture
def client(rollout: RolloutHandle) -> Iterator[OpenAI]:
    with OpenAI(base_url=rollout.openai_base_url, api_key=rollout.agent_key, max_retries=0) as client:
        yield client


def histories(rollout: RolloutHandle) -> list[str]:
    return [call.history for call in rollout.trajectory().calls]


def test_a_text_is_answered_with_usage_and_the_settings_that_held(client: OpenAI) -> None:
    response = client.responses.create(
        model="smol", input="Say hello.", instructions="Be brief.", max_output_tokens=24, temperature=0.5,
        metadata={"run": "7"},
    )  # fmt: skip
    assert response.status in {"completed", "incomplete"}
    assert response.output_text
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert (response.instructions, response.temperature, response.metadata) == ("Be brief.", 0.5, {"run": "7"})
    assert [item.type for item in response.output] == ["message"]


def test_an_answer_at_the_limit_is_incomplete_and_says_why(client: OpenAI) -> None:
    response = client.responses.create(model="smol", input="Count to one hundred.", max_output_tokens=3)
    assert (response.status, response.incomplete_details and response.incomplete_details.reason) == (
        "incomplete", "max_output_tokens",
    )  # fmt: skip
    assert response.output[-1].status == "incomplete"  # type: ignore[union-attr]


@pytest.mark.usefixtures("uncached")
def test_the_stream_helper_adds_up_to_the_answer_that_comes_whole(client: OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": "smol", "input": "Name a colour.", "max_output_tokens": 40, "temperature": 0.0,
        "extra_body": {"seed": 3},
    }  # fmt: skip
    whole = client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == whole.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == whole.output_text


@pytest.mark.parametrize("named", [False, True], ids=["whole input", "previous_response_id"])
def test_six_turns_with_tool_results_are_one_root_and_no_fork(
    client: OpenAI, rollout: RolloutHandle, named: bool
) -> None:
    history: list[Any] = [{"role": "user", "content": "What is the weather in Rome?"}]
    new, previous = list(history), None
    for turn in range(6):
        response = client.responses.create(
            model="smol",
            instructions="Use the tool.",
            input=new if named else history,
            previous_response_id=previous if named else openai.omit,
            tools=[WEATHER],
            tool_choice="required" if turn < 5 else "none",
            max_output_tokens=200 if turn < 5 else 20,
            temperature=0.0,
        )
        calls = [item for item in response.output if item.type == "function_call"]
        assert turn == 5 or calls
        new = [
            {"type": "function_call_output", "call_id": call.call_id, "output": f"{turn}: sunny"} for call in calls
        ] + ([] if calls else [{"role": "user", "content": "Go on."}])
        history += [*response.output, *new]
        previous = response.id
    assert histories(rollout) == ["root"] + ["spliced"] * 5


class Colour(BaseModel):
    name: str
    warm: bool


def test_a_structured_answer_is_parsed(client: OpenAI) -> None:
    response = client.responses.parse(
        model="smol", input="Describe red.", text_format=Colour, max_output_tokens=100, temperature=0.0
    )
    if response.status == "completed":
        assert isinstance(response.output_parsed, Colour)


async def test_the_async_client_streams_tools_and_answers(turnstile: Client) -> None:
    handle = turnstile.rollout()
    async with AsyncOpenAI(base_url=handle.openai_base_url, api_key=handle.agent_key, max_retries=0) as client:
        asked: dict[str, Any] = {"model": "smol", "tools": [WEATHER], "tool_choice": "required"}
        events: list[Any] = []
        # Freely sampled, a small model may call until its window is full.
        while not events or events[-1].type == "response.incomplete":
            stream = await client.responses.create(**asked, input="Rome?", stream=True)
            events = [event async for event in stream]
        done = [event for event in events if event.type == "response.function_call_arguments.done"]
        final = events[-1]
        assert final.type == "response.completed"
        (call, *_) = [item for item in final.response.output if item.type == "function_call"]
        assert (call.arguments, call.id) == (done[0].arguments, done[0].item_id)
        assert "city" in json.loads(call.arguments)
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        asked |= {"tool_choice": "none", "max_output_tokens": 8}
        second = await client.responses.create(**asked, input=[output], previous_response_id=final.response.id)
        assert second.previous_response_id == final.response.id
    assert (histories(handle)[0], histories(handle)[-1]) == ("root", "spliced")
    handle.finish()


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"temperature": 9}, "temperature"),
        ({"input": []}, "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}, "tools[0].type"),
        ({"previous_response_id": "resp_nobody-c0"}, "previous_response_id"),
        ({"previous_response_id": "resp_68e0f0b5"}, "previous_response_id"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(client: OpenAI, wrong: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(**{"model": "smol", "input": "Hi", **wrong})
    assert (refused.value.param, refused.value.type) == (param, "invalid_request_error")


def test_an_answer_that_was_not_to_be_stored_cannot_be_named(client: OpenAI) -> None:
    private = client.responses.create(model="smol", input="Hi", store=False, max_output_tokens=2)
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="smol", input="more", previous_response_id=private.id)
    assert refused.value.code == "previous_response_not_found"


def test_a_prompt_that_is_too_long_is_refused_with_the_engines_numbers(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="smol", input="word " * 9000)
    assert refused.value.code == "context_length_exceeded"


def test_a_conversation_costs_the_same_ids_in_both_of_openais_dialects(
    client: OpenAI, rollout: RolloutHandle, start: Callable[..., Client]
) -> None:
    del start
    chat_tool = {"type": "function", "function": {key: WEATHER[key] for key in ("name", "description", "parameters")}}
    system, question = "Use the tool.", "What is the weather in Rome?"
    client.chat.completions.create(
        model="smol",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": question}],
        tools=[chat_tool],  # type: ignore[list-item]
        max_tokens=2,
    )
    client.responses.create(model="smol", instructions=system, input=question, tools=[WEATHER], max_output_tokens=16)
    first, second = rollout.trajectory().sequences
    prompts = [each.token_ids.tolist()[: each.segments[0].end] for each in (first, second)]
    assert prompts[0] == prompts[1]
