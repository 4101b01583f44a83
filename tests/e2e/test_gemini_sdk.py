"""Google's official SDK, unmodified, against a real model: whole, streamed, tools, structured output, counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from google import genai
from google.genai import errors, types
from pydantic import BaseModel

from turnstile.client import Client

pytestmark = pytest.mark.engine

GREEDY: Any = {"temperature": 0, "max_output_tokens": 12}
WEATHER: Any = {
    "name": "weather",
    "parameters": {
        "type": "OBJECT",
        "properties": {"city": {"type": "STRING", "enum": ["Paris", "Rome"]}, "wind": {"type": "BOOLEAN"}},
        "required": ["city", "wind"],
    },
}
CLOCK: Any = {"name": "clock", "parameters": {"type": "OBJECT", "properties": {}}}


class Place(BaseModel):
    """What a structured answer holds."""

    city: str
    sunny: bool


@pytest.fixture
def rollout(turnstile: Client) -> Iterator[Any]:
    handle = turnstile.rollout()
    yield handle
    handle.finish()


@pytest.fixture
def client(rollout: Any) -> Iterator[genai.Client]:
    options = types.HttpOptions(base_url=rollout.base_url, retry_options=types.HttpRetryOptions(attempts=1))
    client = genai.Client(api_key=rollout.agent_key, http_options=options)
    yield client
    client.close()


def forced(*names: str) -> Any:
    return {"function_calling_config": {"mode": "ANY", "allowed_function_names": list(names) or None}}


@pytest.mark.usefixtures("uncached")
def test_a_stream_says_what_a_whole_answer_says(client: genai.Client) -> None:
    whole = client.models.generate_content(model="smol", contents="Say hello.", config=GREEDY)
    chunks = list(client.models.generate_content_stream(model="smol", contents="Say hello.", config=GREEDY))
    assert "".join(chunk.text or "" for chunk in chunks) == whole.text
    assert len(chunks) > 2
    assert whole.usage_metadata and chunks[-1].usage_metadata
    assert whole.usage_metadata.candidates_token_count == chunks[-1].usage_metadata.candidates_token_count


def test_a_count_is_what_the_call_costs(client: genai.Client) -> None:
    counted = client.models.count_tokens(model="smol", contents="Say hello.")
    answer = client.models.generate_content(model="smol", contents="Say hello.", config={"max_output_tokens": 2})
    assert answer.usage_metadata
    assert counted.total_tokens == answer.usage_metadata.prompt_token_count
    assert answer.candidates and answer.candidates[0].finish_reason is types.FinishReason.MAX_TOKENS


def ended(answer: Any) -> bool:
    """Whether it came to its end, and not to its limit."""
    return bool(answer.candidates[0].finish_reason is not types.FinishReason.MAX_TOKENS)


def test_any_function_is_called_with_arguments_of_its_schema_and_its_response_is_spliced(
    client: genai.Client, turnstile: Client, rollout: Any, by_some_seed: Any
) -> None:
    tools: Any = [{"function_declarations": [WEATHER]}]

    def begun(seed: int) -> Any:
        chat = client.chats.create(model="smol", config={"tools": tools, "max_output_tokens": 200})
        config: Any = {"tools": tools, "tool_config": forced(), "seed": seed, "max_output_tokens": 200}
        return chat, chat.send_message("Rome?", config=config)

    chat, first = by_some_seed(begun, lambda begun: ended(begun[1]))
    calls = first.function_calls or []
    assert calls and calls[0].args
    assert calls[0].args["city"] in ("Paris", "Rome") and isinstance(calls[0].args["wind"], bool)
    responses = [
        types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response={"output": "mild"}))
        for call in calls
    ]
    list(chat.send_message_stream(responses, config={"tools": tools, "max_output_tokens": 8}))
    history = json.loads(turnstile.get(f"/rollouts/{rollout.rollout_id}"))["history"]
    assert (history.keys(), history["spliced"]) == ({"root", "spliced"}, 1)


def test_a_named_function_is_the_one_that_is_called(client: genai.Client, by_some_seed: Any) -> None:
    answer = by_some_seed(
        lambda seed: client.models.generate_content(
            model="smol",
            contents="Hi",
            config={
                "tools": [{"function_declarations": [WEATHER, CLOCK]}],
                "tool_config": forced("clock"),
                "max_output_tokens": 100,
                "seed": seed,
            },
        ),
        ended,
    )
    assert [call.name for call in answer.function_calls or []] == ["clock"]


def test_an_answer_keeps_to_a_schema(client: genai.Client, by_some_seed: Any) -> None:
    answer = by_some_seed(
        lambda seed: client.models.generate_content(
            model="smol",
            contents="A place, please.",
            config={
                "response_mime_type": "application/json",
                "response_schema": Place,
                "max_output_tokens": 400,
                "seed": seed,
            },
        ),
        ended,
    )
    assert isinstance(answer.parsed, Place)


def test_candidates_and_log_probabilities_come_from_the_model(client: genai.Client) -> None:
    answer = client.models.generate_content(
        model="smol",
        contents="Hi",
        config={"candidate_count": 2, "max_output_tokens": 4, "response_logprobs": True, "logprobs": 2, "seed": 1},
    )
    assert answer.candidates and len(answer.candidates) == 2
    for candidate in answer.candidates:
        shown = candidate.logprobs_result
        assert shown and shown.chosen_candidates
        assert all((each.log_probability or 0) <= 0 for each in shown.chosen_candidates)


# The SDK derives a class from aiohttp's own.
@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
def test_the_asynchronous_client_runs_side_by_side(client: genai.Client) -> None:
    async def all_at_once() -> list[Any]:
        try:
            ask = client.aio.models.generate_content
            answers = await asyncio.gather(*[ask(model="smol", contents="Hi", config=GREEDY) for _ in range(3)])
            stream = await client.aio.models.generate_content_stream(model="smol", contents="Hi", config=GREEDY)
            said = "".join([chunk.text or "" async for chunk in stream])
            return [*(answer.response_id for answer in answers), said]
        finally:
            await client.aio.aclose()

    *ids, said = asyncio.run(all_at_once())
    assert (len(set(ids)), bool(said)) == (3, True)


def test_refusals_are_the_sdks_own_exceptions(client: genai.Client) -> None:
    with pytest.raises(errors.ClientError, match="gemini-9"):
        client.models.generate_content(model="gemini-9", contents="Hi")
    with pytest.raises(errors.ClientError, match="exceeds the maximum number of tokens"):
        client.models.generate_content(model="smol", contents="go " * 6000)


def test_the_key_alone_may_name_the_rollout(turnstile: Client, rollout: Any) -> None:
    options = types.HttpOptions(base_url=turnstile.url)
    with genai.Client(api_key=rollout.agent_key, http_options=options) as client:
        answer = client.models.generate_content(model="smol", contents="Hi", config={"max_output_tokens": 2})
    assert (answer.response_id or "").startswith(rollout.rollout_id)
