"""The official OpenAI SDK, unmodified: sync, async, streaming, tools, structured output, errors."""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from turnstile.client import Client

pytestmark = pytest.mark.engine

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Say hello."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome"]}, "wind": {"type": "boolean"}},
            "required": ["city", "wind"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def client(turnstile: Client) -> Any:
    handle = turnstile.rollout()
    with OpenAI(base_url=handle.openai_base_url, api_key=handle.agent_key, max_retries=0) as client:
        yield client
    handle.finish()


def test_models_are_listed_and_retrieved(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["smol"]
    assert client.models.retrieve("smol").id == "smol"


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="gpt-9"):
        client.chat.completions.create(model="gpt-9", messages=HELLO)


def test_n_choices_are_n_answers_of_one_prompt(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="smol", messages=HELLO, n=3, max_tokens=6, seed=1)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) == 3
    assert answer.usage is not None
    assert 3 <= answer.usage.completion_tokens <= 18


def test_log_probabilities_have_one_entry_a_token_and_as_many_alternatives_as_asked(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="smol", messages=HELLO, max_tokens=5, logprobs=True, top_logprobs=2, temperature=0
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None and answer.usage is not None
    assert len(logprobs.content) == answer.usage.completion_tokens
    assert all(len(entry.top_logprobs) == 2 and entry.logprob <= 0 for entry in logprobs.content)
    # Greedy: the sampled token is the likeliest.
    assert all(entry.logprob == max(top.logprob for top in entry.top_logprobs) for entry in logprobs.content)


@pytest.mark.usefixtures("uncached")
def test_the_same_seed_gives_the_same_answer_and_another_seed_another(client: OpenAI) -> None:
    def answer(seed: int) -> str | None:
        made = client.chat.completions.create(model="smol", messages=HELLO, max_tokens=12, seed=seed)
        return made.choices[0].message.content

    assert answer(7) == answer(7) != answer(8)


@pytest.mark.usefixtures("uncached")
def test_a_stop_string_ends_the_text_before_it(client: OpenAI) -> None:
    free = client.chat.completions.create(model="smol", messages=HELLO, max_tokens=24, seed=4)
    text = free.choices[0].message.content or ""
    word = text.split()[3]
    cut = client.chat.completions.create(model="smol", messages=HELLO, max_tokens=24, seed=4, stop=[word])
    assert cut.choices[0].finish_reason == "stop"
    assert cut.choices[0].message.content == text[: text.index(word)]


def test_max_tokens_and_max_completion_tokens_end_an_answer_by_length(client: OpenAI) -> None:
    for limit in ({"max_tokens": 3}, {"max_completion_tokens": 3}):
        answer = client.chat.completions.create(model="smol", messages=HELLO, seed=1, **limit)
        assert answer.usage is not None
        assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 3)


def test_a_required_tool_is_called_with_arguments_of_its_schema(client: OpenAI, by_some_seed: Any) -> None:
    answer = by_some_seed(
        lambda seed: client.chat.completions.create(
            model="smol", messages=HELLO, tools=[WEATHER], tool_choice="required", max_tokens=200, seed=seed
        ),
        lambda answer: answer.choices[0].finish_reason != "length",
    )
    (call,) = (answer.choices[0].message.tool_calls or [])[:1]
    arguments = json.loads(call.function.arguments)
    assert (answer.choices[0].finish_reason, call.function.name) == ("tool_calls", "weather")
    assert arguments["city"] in ("Paris", "Rome") and isinstance(arguments["wind"], bool)


def test_a_named_tool_is_the_one_that_is_called(client: OpenAI, by_some_seed: Any) -> None:
    answer = by_some_seed(
        lambda seed: client.chat.completions.create(
            model="smol",
            messages=HELLO,
            tools=[WEATHER, CLOCK],
            tool_choice={"type": "function", "function": {"name": "clock"}},
            max_tokens=100,
            seed=seed,
        ),
        lambda answer: answer.choices[0].finish_reason != "length",
    )
    assert [call.function.name for call in answer.choices[0].message.tool_calls or []] == ["clock"]


@pytest.mark.usefixtures("uncached")
def test_streamed_tool_calls_add_up_to_the_whole_ones(client: OpenAI, by_some_seed: Any) -> None:
    asked: dict[str, Any] = {
        "model": "smol", "messages": HELLO, "tools": [WEATHER], "tool_choice": "required", "max_tokens": 200,
    }  # fmt: skip
    seed, answer = by_some_seed(
        lambda seed: (seed, client.chat.completions.create(**asked, seed=seed)),
        lambda seeded: seeded[1].choices[0].finish_reason != "length",
    )
    whole = answer.choices[0].message.tool_calls or []
    with client.chat.completions.stream(**asked, seed=seed) as stream:
        streamed = stream.get_final_completion().choices[0].message.tool_calls or []
    assert [call.function.arguments for call in streamed] == [call.function.arguments for call in whole]
    assert [call.function.name for call in streamed] == [call.function.name for call in whole] != []


def test_tool_choice_none_gives_text(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="smol", messages=HELLO, tools=[WEATHER], tool_choice="none", max_tokens=8
    )
    assert answer.choices[0].message.tool_calls is None


def test_a_json_schema_is_enforced_and_parsed_by_the_sdk(client: OpenAI) -> None:
    class Visit(BaseModel):
        city: Literal["Paris", "Rome"]
        again: bool

    parsed = []
    for seed in range(8):
        try:
            answer = client.chat.completions.parse(
                model="smol", messages=HELLO, response_format=Visit, max_tokens=60, seed=seed
            )
        except openai.LengthFinishReasonError:
            continue  # a model this small may fill its answer with the blanks that JSON allows
        parsed.append(answer.choices[0].message.parsed)
    assert parsed and all(isinstance(each, Visit) for each in parsed)


def test_json_object_begins_an_object(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="smol", messages=HELLO, response_format={"type": "json_object"}, max_tokens=20, temperature=0.0
    )
    assert (answer.choices[0].message.content or "").lstrip().startswith("{")


def test_usage_is_streamed_only_if_it_was_asked_for(client: OpenAI) -> None:
    def last(**options: Any) -> Any:
        asked = client.chat.completions.create(model="smol", messages=HELLO, max_tokens=3, stream=True, **options)
        return list(asked)[-1]

    assert last().usage is None and last().choices
    with_usage = last(stream_options={"include_usage": True})
    assert with_usage.choices == [] and with_usage.usage.completion_tokens <= 3


@pytest.mark.usefixtures("uncached")
async def test_the_async_client_streams_and_answers(turnstile: Client) -> None:
    handle = turnstile.rollout()
    async with AsyncOpenAI(base_url=handle.openai_base_url, api_key=handle.agent_key, max_retries=0) as client:
        asked: dict[str, Any] = {"model": "smol", "messages": HELLO, "max_tokens": 8, "seed": 2}
        whole = await client.chat.completions.create(**asked)
        text = ""
        async for chunk in await client.chat.completions.create(**asked, stream=True):
            text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
    handle.finish()
    assert text == whole.choices[0].message.content


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"temperature": 9}, "temperature"),
        ({"n": 0}, "n"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages"),
        ({"audio": {"voice": "alloy", "format": "wav"}, "modalities": ["audio"]}, "audio"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(client: OpenAI, wrong: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**{"model": "smol", "messages": HELLO, **wrong})
    assert param in str(refused.value.body)


def test_a_prompt_that_is_too_long_is_refused_with_the_engines_numbers(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="smol", messages=[{"role": "user", "content": "word " * 9000}])
    assert refused.value.code == "context_length_exceeded"
    assert "4096" in refused.value.message
