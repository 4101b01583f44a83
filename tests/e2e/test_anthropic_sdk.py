"""The official Anthropic SDK, unmodified, against a real model: whole, streamed, tools, structured output, counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic

from turnstile.client import Client

pytestmark = pytest.mark.engine

HELLO: list[Any] = [{"role": "user", "content": "Say hello."}]
WEATHER: Any = {
    "name": "weather",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}, "wind": {"type": "boolean"}},
        "required": ["city", "wind"],
    },
}
CLOCK: Any = {"name": "clock", "input_schema": {"type": "object", "properties": {}}}
GREEDY: Any = {"temperature": 0}


@pytest.fixture
def rollout(turnstile: Client) -> Iterator[Any]:
    handle = turnstile.rollout()
    yield handle
    handle.finish()


@pytest.fixture
def client(rollout: Any) -> Iterator[Anthropic]:
    with Anthropic(base_url=rollout.anthropic_base_url, api_key=rollout.agent_key, max_retries=0) as client:
        yield client


def test_models_are_listed_and_retrieved(client: Anthropic) -> None:
    assert [model.id for model in client.models.list()] == ["smol"]
    assert client.models.retrieve("smol").id == "smol"


@pytest.mark.usefixtures("uncached")
def test_a_stream_says_what_a_whole_answer_says(client: Anthropic) -> None:
    asked: Any = {"model": "smol", "max_tokens": 12, "messages": HELLO, "extra_body": GREEDY}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert whole.content[0].type == "text"
    assert "".join(pieces) == whole.content[0].text == final.content[0].text
    assert len(pieces) > 1
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)


def test_a_count_is_what_the_call_costs(client: Anthropic) -> None:
    counted = client.messages.count_tokens(model="smol", messages=HELLO, system="Be brief.", tools=[WEATHER])
    answer = client.messages.create(model="smol", max_tokens=4, messages=HELLO, system="Be brief.", tools=[WEATHER])
    assert counted.input_tokens == answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)


def test_any_tool_is_called_with_an_input_of_its_schema_and_its_result_is_spliced(
    client: Anthropic, turnstile: Client, rollout: Any, by_some_seed: Any
) -> None:
    first = by_some_seed(
        lambda seed: client.messages.create(
            model="smol",
            max_tokens=200,
            messages=HELLO,
            tools=[WEATHER],
            tool_choice={"type": "any"},
            extra_body={"seed": seed},
        ),
        lambda answer: answer.stop_reason != "max_tokens",
    )
    calls = [block for block in first.content if block.type == "tool_use"]
    assert first.stop_reason == "tool_use"
    assert calls[0].input["city"] in ("Paris", "Rome") and isinstance(calls[0].input["wind"], bool)

    results: Any = [{"type": "tool_result", "tool_use_id": call.id, "content": "mild"} for call in calls]
    again: Any = [*HELLO, first.to_param(), {"role": "user", "content": results}]
    with client.messages.stream(model="smol", max_tokens=8, messages=again, tools=[WEATHER]) as stream:
        stream.until_done()
    summary = json.loads(turnstile.get(f"/rollouts/{rollout.rollout_id}"))
    assert (summary["history"].keys(), summary["history"]["spliced"]) == ({"root", "spliced"}, 1)


def test_a_named_tool_is_the_one_that_is_called(client: Anthropic, by_some_seed: Any) -> None:
    def streamed(seed: int) -> Any:
        with client.messages.stream(
            model="smol",
            max_tokens=100,
            messages=HELLO,
            tools=[WEATHER, CLOCK],
            tool_choice={"type": "tool", "name": "clock"},
            extra_body={"seed": seed},
        ) as stream:
            return stream.get_final_message()

    final = by_some_seed(streamed, lambda answer: answer.stop_reason != "max_tokens")
    assert [block.name for block in final.content if block.type == "tool_use"] == ["clock"]


def test_an_answer_keeps_to_a_schema(client: Anthropic, by_some_seed: Any) -> None:
    schema = {**WEATHER["input_schema"], "additionalProperties": False}
    form: Any = {"format": {"type": "json_schema", "schema": schema}}
    answer = by_some_seed(
        lambda seed: client.messages.create(
            model="smol", max_tokens=400, messages=HELLO, output_config=form, extra_body={"seed": seed}
        ),
        lambda answer: answer.stop_reason != "max_tokens",
    )
    assert json.loads(answer.content[0].text)["city"] in ("Paris", "Rome")


def test_a_prefill_is_continued(client: Anthropic) -> None:
    begun: Any = [*HELLO, {"role": "assistant", "content": "Hello, my name"}]
    answer = client.messages.create(model="smol", max_tokens=4, messages=begun, extra_body=GREEDY)
    assert answer.content[0].text.startswith(" ")


def test_stop_sequences_and_limits_end_an_answer(client: Anthropic) -> None:
    asked: Any = {"model": "smol", "messages": HELLO, "extra_body": GREEDY}
    free = client.messages.create(**asked, max_tokens=12)
    word = free.content[0].text.split()[2]
    cut = client.messages.create(**asked, max_tokens=12, stop_sequences=[word])
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", word)
    assert client.messages.create(**asked, max_tokens=2).stop_reason == "max_tokens"


def test_the_asynchronous_client_runs_side_by_side(rollout: Any) -> None:
    async def all_at_once() -> list[Any]:
        async with AsyncAnthropic(
            base_url=rollout.anthropic_base_url, api_key=rollout.agent_key, max_retries=0
        ) as client:
            asked: Any = {"model": "smol", "max_tokens": 5, "messages": HELLO}
            return await asyncio.gather(*[client.messages.create(**asked) for _ in range(3)])

    answers = asyncio.run(all_at_once())
    assert len({answer.id for answer in answers}) == 3


def test_refusals_are_the_sdks_own_exceptions(client: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="claude-9"):
        client.messages.create(model="claude-9", max_tokens=5, messages=HELLO)
    long: Any = [{"role": "user", "content": "go " * 6000}]
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        client.messages.create(model="smol", max_tokens=5, messages=long)


def test_the_key_alone_may_name_the_rollout(turnstile: Client, rollout: Any) -> None:
    with Anthropic(base_url=turnstile.url, api_key=rollout.agent_key, max_retries=0) as client:
        answer = client.messages.with_raw_response.create(model="smol", max_tokens=3, messages=HELLO)
    assert answer.headers["x-turnstile-rollout"] == rollout.rollout_id
    assert answer.request_id == f"req_{rollout.rollout_id}-{answer.headers['x-turnstile-call']}"
