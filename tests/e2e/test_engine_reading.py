"""A template whose tool calls Turnstile cannot read, over an engine that can: the engine reads, the ids stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic
from openai import BadRequestError, OpenAI

from turnstile.client import Client
from turnstile.config import Settings
from turnstile.engines.smollm import say_nothing
from turnstile.server.local import serving
from turnstile.templates.tokenizer import Tokenizer

TOOL: Any = {
    "type": "function",
    "function": {"name": "ls", "parameters": {"type": "object", "properties": {"p": {"type": "string"}}}},
}
CALL = 'I look.<tool_call>\n{"name": "ls", "arguments": {"p": "."}}\n</tool_call><|im_end|>'
DONE = "Two files.<|im_end|>"
CHAT = "/v1/chat/completions"


class Room:
    """A Turnstile over a fake vLLM."""

    def __init__(self, client: Client, fake: Any, tokenizer: Tokenizer) -> None:
        self.client = client
        self.fake = fake
        self.tokenizer = tokenizer

    def script(self, *texts: str) -> list[list[int]]:
        answers = [self.tokenizer.encode(text).tolist() for text in texts]
        self.fake.script(*answers)
        return answers


@pytest.fixture(scope="module")
def one_room(
    vllm_fakes: Any,
    family: Callable[[str], Path],
    tokenizers_of: Callable[[Path], Tokenizer],
    wires: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Room]:
    folder, scratch = family("qwen3"), tmp_path_factory.mktemp("room")
    tokenizer = tokenizers_of(folder)
    # The model is not touched by it: only what the template's own text says is unknown now.
    template = (folder / "chat_template.jinja").read_text().replace("tool_call>", "do_call>")
    (scratch / "template.jinja").write_text(template)
    fake = vllm_fakes.VllmFake(
        wires.Rows(tokenizer),
        special=frozenset(token.id for token in tokenizer.added if token.special),
        eos=frozenset({tokenizer.id_of("<|im_end|>")}),
        encode=lambda text: tokenizer.encode(text).tolist(),
    )
    with ExitStack() as stack:
        settings = Settings(
            engine=stack.enter_context(fake.in_thread()),
            model="m",
            tokenizer=folder,
            template=scratch / "template.jinja",
            store=scratch / "store",
            port=0,
        )
        yield Room(stack.enter_context(serving(settings, say_nothing)), fake, tokenizer)


@pytest.fixture
def room(one_room: Room) -> Iterator[Room]:
    one_room.fake.requests.clear()
    yield one_room
    one_room.fake.forget()


@pytest.mark.parametrize("streamed", [False, True])
def test_calls_are_told_by_the_engine_and_the_next_prompt_is_spliced_behind_its_ids(room: Room, streamed: bool) -> None:
    first, second = room.script(CALL, DONE)
    with room.client.rollout() as rollout, OpenAI(base_url=rollout.openai_base_url, api_key=rollout.agent_key) as agent:
        messages: list[Any] = [{"role": "user", "content": "What is here?"}]
        for _ in range(2):
            answer = _answered(agent, messages, streamed)
            messages.append(answer)
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": "a b"} for call in answer.get("tool_calls", ())
            ]
        rollout.finish(reward=1.0)
        calls = rollout.trajectory().calls
    called, done = (message for message in messages if message["role"] == "assistant")
    assert called["content"] == "I look."
    assert [call["function"] for call in called["tool_calls"]] == [{"name": "ls", "arguments": '{"p": "."}'}]
    assert not called["tool_calls"][0]["id"].startswith("chatcmpl-tool")
    assert done["content"] == "Two files."
    assert [call.history for call in calls] == ["root", "spliced"]
    assert [path for path, _ in room.fake.requests] == [CHAT, CHAT]
    sent = [body["kv_transfer_params"]["prompt_token_ids"] for _, body in room.fake.requests]
    assert sent[1][: len(sent[0]) + len(first)] == sent[0] + first
    assert len(second) == calls[1].usage.completion_tokens


def _answered(agent: OpenAI, messages: list[Any], streamed: bool) -> dict[str, Any]:
    if not streamed:
        whole = agent.chat.completions.create(model="m", messages=messages, tools=[TOOL])
        return whole.choices[0].message.model_dump(exclude_none=True)
    with agent.chat.completions.stream(model="m", messages=messages, tools=[TOOL]) as stream:
        message = stream.get_final_completion().choices[0].message.model_dump(exclude_none=True)
    calls = [{**each, "function": {k: each["function"][k] for k in ("name", "arguments")}}
             for each in message.get("tool_calls", ())]  # fmt: skip
    kept = {name: message[name] for name in ("role", "content") if name in message}
    return kept | ({"tool_calls": calls} if calls else {})


def test_another_dialect_is_told_the_same(room: Room) -> None:
    room.script(CALL)
    tool: Any = {"name": "ls", "input_schema": {"type": "object", "properties": {"p": {"type": "string"}}}}
    with (
        room.client.rollout() as rollout,
        Anthropic(base_url=rollout.anthropic_base_url, api_key=rollout.agent_key) as agent,
        agent.messages.stream(
            model="m", max_tokens=99, tools=[tool], messages=[{"role": "user", "content": "What is here?"}]
        ) as stream,
    ):
        message = stream.get_final_message()
    assert [
        (block.type, getattr(block, "text", None) or getattr(block, "input", None)) for block in message.content
    ] == [
        ("text", "I look."),
        ("tool_use", {"p": "."}),
    ]
    assert message.stop_reason == "tool_use"


def test_a_required_call_is_the_engine_s_to_enforce_and_the_record_says_so(room: Room) -> None:
    room.script(CALL)
    with room.client.rollout() as rollout, OpenAI(base_url=rollout.openai_base_url, api_key=rollout.agent_key) as agent:
        agent.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hi"}], tools=[TOOL], tool_choice="required"
        )
        with pytest.raises(BadRequestError, match="which is not among the tools"):
            agent.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "Hi"}],
                tools=[TOOL],
                tool_choice={"type": "function", "function": {"name": "rm"}},
            )
    ((_, body),) = room.fake.requests
    assert body["tool_choice"] == "required"
    assert "structured_outputs" not in body
