"""The official Anthropic SDK, unmodified, through the whole server to an engine that answers scripted ids.

The public cases that need its own shapes are here under their names; others in `test_cases_in_every_dialect.py`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

LS = {
    "name": "ls",
    "description": "Lists a folder.",
    "input_schema": {"type": "object", "properties": {"p": {"type": "string"}}, "required": ["p"]},
}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 8).decode()
DUCK = "\N{DUCK}"
ENDED = ["message_delta", "message_stop"]


def calling(path: str, name: str = "ls", key: str = "p") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"{key}": "{path}"}}}}\n</tool_call>'


class Asker:
    """A client with one rollout, whose history is a list of messages."""

    def __init__(self, room: Any, client: anthropic.Anthropic, agent: Any) -> None:
        self.room = room
        self.client = client
        self.agent = agent
        self.prompts: list[list[int]] = []
        """Ids of each prompt that the engine was given, first to last."""

    def ask(self, *messages: Any, stream: bool = False, **fields: Any) -> anthropic.types.Message:
        """Ask whole, or with the SDK's stream helper."""
        sent = [{"role": "user", "content": each} if isinstance(each, str) else each for each in messages]
        asked = {"model": "m", "max_tokens": 200, "messages": sent, **fields}
        heard = self.room.fake.requests
        before = len(heard)
        if stream:
            with self.client.messages.stream(**asked) as events:
                answer = events.get_final_message()
        else:
            answer = self.client.messages.create(**asked)
        self.prompts += [request["prompt"] for request in heard[before : before + 1]]
        return answer

    @property
    def history(self) -> dict[str, int]:
        return self.agent.summary["history"]

    @property
    def notes(self) -> dict[str, int]:
        return self.agent.summary["notes"]


def asker(room: Any, **options: Any) -> Asker:
    agent = room.agent()
    client = anthropic.Anthropic(
        base_url=agent.handle.anthropic_base_url, api_key=agent.handle.agent_key, max_retries=0, **options
    )
    return Asker(room, client, agent)


@pytest.fixture
def talk(wired: Callable[..., Any]) -> Iterator[Callable[..., Asker]]:
    """`talk()`: a fresh rollout of a Qwen3, asked by the SDK."""
    made: list[Asker] = []

    def talk() -> Asker:
        made.append(asker(wired("qwen3")))
        return made[-1]

    yield talk
    for each in made:
        each.client.close()


def said(message: anthropic.types.Message) -> dict[str, Any]:
    return message.to_param()


def result(call: Any, content: Any = "b", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call.id, "content": content, **more}


def results(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@STREAMS
def test_a_turn_has_thinking_text_and_calls_and_comes_back_as_the_same_ids(talk: Any, stream: bool) -> None:
    it = talk()
    answer_ids, _ = it.room.script(f"<think>\nR\n</think>\n\nHi{calling('/a')}<|im_end|>", "Done<|im_end|>")
    first = it.ask("go", tools=[LS], stream=stream)
    second = it.ask("go", said(first), results(result(first.content[-1])), tools=[LS], stream=stream)

    thinking, text, call = first.content
    assert (thinking.thinking, text.text, call.name, call.input) == ("R", "Hi", "ls", {"p": "/a"})
    assert (first.stop_reason, first.id.startswith("msg_")) == ("tool_use", True)
    assert (second.content[0].text, second.stop_reason) == ("Done", "end_turn")
    one, two = it.prompts
    assert two[: len(one) + len(answer_ids)] == one + answer_ids
    assert it.history == {"root": 1, "spliced": 1}
    usage = first.usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == len(one)
    assert usage.output_tokens == len(answer_ids)


@STREAMS
def test_six_turns_with_tools_are_one_root_without_a_fork(talk: Any, wires: Any, stream: bool, tmp_path: Path) -> None:
    it = talk()
    texts = [f"<think>\nstep {at}\n</think>\n\nLook {at}{calling(f'/{at}')}<|im_end|>" for at in range(5)]
    scripted = it.room.script(*texts, "All done.\n<|im_end|>")
    history: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Fix it."}]}]
    for at in range(6):
        # As Claude Code does: the cache mark moves, and a message is a list while it has one.
        marked = {**history[-1], "content": [{**block} for block in history[-1]["content"]]}
        marked["content"][-1]["cache_control"] = {"type": "ephemeral"}
        system = [{"type": "text", "text": "Be brief.", **({"cache_control": {"type": "ephemeral"}} if at % 2 else {})}]
        answer = it.ask(*history[:-1], marked, tools=[LS], system=system, stream=stream)
        history += [said(answer), results(result(answer.content[-1], f"{at}: ok"))] if at < 5 else []

    assert it.history == {"root": 1, "spliced": 5}
    rollout = it.agent.exported(tmp_path)
    (sequence,) = rollout.sequences
    assert wires.sampled(sequence) == scripted
    assert sequence.token_ids.tolist() == it.prompts[-1] + scripted[-1]
    assert {call.dialect for call in rollout.calls} == {"anthropic.messages"}


def test_one_conversation_costs_the_same_ids_as_in_chat_completions(talk: Any, wires: Any) -> None:
    answers = [f"Look{calling('/a')}<|im_end|>", "Done<|im_end|>", "Yes<|im_end|>"]
    it = talk()
    it.room.script(*answers)
    first = it.ask("go", tools=[LS], system="Be brief.")
    second = it.ask("go", said(first), results(result(first.content[-1])), tools=[LS], system="Be brief.")
    it.ask("go", said(first), results(result(first.content[-1])), said(second), "sure?", tools=[LS], system="Be brief.")
    it.room.script(*answers)
    agent = it.room.agent()
    function = {"name": "ls", "description": LS["description"], "parameters": LS["input_schema"]}
    asked = {"tools": [{"type": "function", "function": function}]}
    system = {"role": "system", "content": "Be brief."}
    one = agent.say(system, "go", **asked)
    answered = wires.tool_result(one.message["tool_calls"][0]["id"], "b")
    two = agent.say(system, "go", one.message, answered, **asked)
    three = agent.say(system, "go", one.message, answered, two.message, "sure?", **asked)
    assert it.prompts == [one.prompt, two.prompt, three.prompt]


def test_the_asynchronous_client_streams_and_joins(talk: Any) -> None:
    it = talk()
    it.room.script("Hello<|im_end|>", "Again<|im_end|>")

    async def both() -> tuple[str, list[str]]:
        async with anthropic.AsyncAnthropic(
            base_url=it.agent.handle.anthropic_base_url, api_key=it.agent.handle.agent_key, max_retries=0
        ) as client:
            asked: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
            whole = await client.messages.create(**asked)
            events = await client.messages.create(stream=True, **asked)
            return whole.content[0].text, [event.type async for event in events]

    text, kinds = asyncio.run(both())
    assert (text, kinds[0], kinds[-2:]) == ("Hello", "message_start", ENDED)


def test_case_e1_text_behind_a_call_is_a_block_behind_it_and_is_known_again(talk: Any) -> None:
    it = talk()
    script = f"<think>\nr\n</think>\n\nHi{calling('/a')} done<|im_end|>"
    it.room.script(script, script, "ok<|im_end|>", "ok<|im_end|>")
    whole, streamed = it.ask("go", tools=[LS]), it.ask("go", tools=[LS], stream=True)
    for each in (whole, streamed):
        assert [block.type for block in each.content] == ["thinking", "text", "tool_use", "text"]
        it.ask("go", said(each), results(result(each.content[2])), tools=[LS])
    assert it.history["spliced"] == 2


@pytest.mark.parametrize(
    ("change", "spliced"),
    [
        (lambda block: block, True),
        (lambda block: None, True),
        (lambda block: {**block, "signature": ""}, True),
        (lambda block: {**block, "thinking": ""}, True),
        (lambda block: {"type": "redacted_thinking", "data": block["signature"]}, True),
        (lambda block: {**block, "thinking": "in short"}, True),
        (lambda block: {**block, "signature": "EqQBCkYIARgC"}, True),
        (lambda block: {**block, "signature": "EqQBCkYIARgC", "thinking": "in short"}, False),
    ],
    ids=["as sent", "absent", "no signature", "hidden", "redacted", "shortened", "foreign signature", "edited"],
)
def test_case_c2_thinking_is_kept_whatever_the_client_does_with_it_and_a_change_forks(
    talk: Any, change: Callable[[dict[str, Any]], dict[str, Any] | None], spliced: bool
) -> None:
    it = talk()
    it.room.script("<think>\nR\n</think>\n\nA<|im_end|>", "B<|im_end|>")
    first = it.ask("q")
    thinking, text = (block.to_dict() for block in first.content)
    blocks = [block for block in (change(thinking), text) if block is not None]
    it.ask("q", {"role": "assistant", "content": blocks}, "more")
    assert it.history == ({"root": 1, "spliced": 1} if spliced else {"root": 1, "forked:assistant_edited": 1})
    shortened = blocks[0].get("thinking") == "in short"
    assert it.notes.get("normalised:reasoning_restored", 0) == (1 if spliced and shortened else 0)


@pytest.mark.parametrize("apart", [False, True], ids=["one user message", "a user message each"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_case_c3_results_of_parallel_calls_come_in_any_order(talk: Any, apart: bool, order: tuple[int, int]) -> None:
    it = talk()
    answer_ids, _ = it.room.script(f"both{calling('/a')}\n{calling('/b')}<|im_end|>", "ok<|im_end|>")
    first = it.ask("go", tools=[LS])
    calls = [block for block in first.content if block.type == "tool_use"]
    blocks = [result(calls[at], f"r{at}") for at in order]
    sent = [results(block) for block in blocks] if apart else [results(*blocks)]
    it.ask("go", said(first), *sent, tools=[LS])
    one, two = it.prompts
    tail = it.room.text(two[len(one) + len(answer_ids) :])
    assert it.history == {"root": 1, "spliced": 1}
    assert tail.index(f"r{order[0]}") < tail.index(f"r{order[1]}")


def test_prefill_is_continued_and_only_the_continuation_is_handed_out(talk: Any) -> None:
    it = talk()
    it.room.script("B) Helios<|im_end|>", "ok<|im_end|>")
    begun = {"role": "assistant", "content": "The best answer is ("}
    first = it.ask("Sun?", begun)
    assert first.content[0].text == "B) Helios"
    assert it.room.text(it.prompts[0]).endswith("The best answer is (")
    it.ask("Sun?", {"role": "assistant", "content": "The best answer is (B) Helios"}, "sure?")
    assert it.history == {"root": 1, "spliced": 1}


def test_a_stop_sequence_is_named(talk: Any) -> None:
    it = talk()
    it.room.script("one END two<|im_end|>")
    answer = it.ask("count", stop_sequences=["END"])
    assert (answer.stop_reason, answer.stop_sequence, answer.content[0].text) == ("stop_sequence", "END", "one ")


def test_an_answer_that_its_limit_cut_says_so(talk: Any) -> None:
    it = talk()
    it.room.script("one two three four five six<|im_end|>")
    assert it.ask("count", max_tokens=3).stop_reason == "max_tokens"


@STREAMS
def test_an_answer_of_nothing_is_a_message_without_blocks(talk: Any, stream: bool) -> None:
    it = talk()
    it.room.script("<|im_end|>")
    answer = it.ask("say nothing", stream=stream)
    assert (answer.content, answer.stop_reason) == ([], "end_turn")


def test_thinking_that_is_not_to_be_shown_is_a_signature(talk: Any) -> None:
    it = talk()
    it.room.script("<think>\nR\n</think>\n\nA<|im_end|>", "B<|im_end|>")
    hidden = {"type": "adaptive", "display": "omitted"}
    first = it.ask("q", thinking=hidden)
    it.ask("q", said(first), "more", thinking=hidden)
    assert (first.content[0].thinking, bool(first.content[0].signature)) == ("", True)
    assert it.history == {"root": 1, "spliced": 1}


def test_a_failed_result_reaches_the_model_as_text(talk: Any) -> None:
    it = talk()
    it.room.script(f"{calling('/a')}<|im_end|>", "b<|im_end|>")
    first = it.ask("go", tools=[LS])
    it.ask("go", said(first), results(result(first.content[0], "no such file", is_error=True)), tools=[LS])
    assert "Error: no such file" in it.room.text(it.prompts[-1])


def test_an_image_is_understood_and_refused_by_the_engines_name(talk: Any) -> None:
    it = talk()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    with pytest.raises(anthropic.BadRequestError, match="image") as caught:
        it.ask({"role": "user", "content": [image, {"type": "text", "text": "what is it?"}]})
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert caught.value.request_id.startswith("req_")


@pytest.mark.parametrize(
    ("fields", "error", "kind"),
    [
        ({"model": "claude-9"}, anthropic.NotFoundError, "not_found_error"),
        ({"extra_body": {"temperature": 7}}, anthropic.BadRequestError, "invalid_request_error"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, anthropic.BadRequestError, None),
        ({"messages": [{"role": "user", "content": "go " * 5000}]}, anthropic.BadRequestError, None),
    ],
)
@STREAMS
def test_refusals_are_the_sdks_own_exceptions(
    talk: Any, fields: dict[str, Any], error: type[anthropic.APIStatusError], kind: str | None, stream: bool
) -> None:
    it = talk()
    with pytest.raises(error) as caught:
        it.ask("go", stream=stream, **fields)
    body = caught.value.body
    assert (body["type"], body["error"]["type"]) == ("error", kind or "invalid_request_error")
    if "messages" in fields:
        assert body["error"]["message"].startswith("prompt is too long")


@STREAMS
def test_an_engine_that_fails_before_the_first_byte_is_an_error_with_a_status(
    talk: Any, fakes: Any, stream: bool
) -> None:
    it = talk()
    it.room.fake.faults.append(fakes.Fault.HALF_BODY)
    with pytest.raises(anthropic.InternalServerError) as caught:
        it.ask("go", stream=stream)
    assert (caught.value.status_code, caught.value.body["error"]["type"]) == (502, "api_error")


def test_case_f1_a_marked_retry_is_told_the_same_message(talk: Any) -> None:
    it = talk()
    it.room.script("<think>\nR\n</think>\n\nA<|im_end|>")
    first = it.ask("go", extra_headers={"x-stainless-retry-count": "0"})
    again = it.ask("go", extra_headers={"x-stainless-retry-count": "1"})
    streamed = it.ask("go", stream=True, extra_headers={"x-stainless-retry-count": "1"})
    assert first == again
    assert (streamed.id, streamed.content[0].signature) == (first.id, first.content[0].signature)
    assert (it.agent.summary["calls"], it.agent.summary["retries"]) == (1, 2)


def test_case_j3_probes_are_no_turns(talk: Any) -> None:
    it = talk()
    base = it.agent.handle.anthropic_base_url
    assert [it.room.http.request("HEAD", base + path).status_code for path in ("", "/api/hello")] == [404, 404]
    assert [model.id for model in it.client.models.list()] == ["m"]
    assert it.client.models.retrieve("m").display_name == "m"
    assert it.agent.summary["calls"] == 0


def test_the_beta_client_is_served_too(talk: Any) -> None:
    it = talk()
    it.room.script("A<|im_end|>")
    answer = it.client.beta.messages.create(
        model="m",
        max_tokens=9,
        messages=[{"role": "user", "content": "Hi"}],
        betas=["context-management-2025-06-27"],
        context_management={"edits": []},
        metadata={"user_id": "u"},
    )
    assert answer.content[0].text == "A"


@pytest.fixture
def silent(wire_up: Callable[..., Any], tools_folder: Path) -> Iterator[Asker]:
    """A room whose clients hear a keep-alive every 50 milliseconds."""
    with wire_up(tools_folder, ("<|im_end|>",), keep_alive_s=0.05, grace_s=0.1) as room:
        it = asker(room)
        yield it
        it.client.close()


def body(**fields: Any) -> bytes:
    return json.dumps(
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], **fields}
    ).encode()


def events_of_a_late_answer(it: Asker) -> list[str]:
    """The events of a raw stream whose engine is silent until some pings have come."""
    it.agent.path = f"{it.agent.handle.anthropic_base_url}/v1/messages"
    it.room.fake.held = True
    with it.agent.calling(body(stream=True)) as line:
        heard = b""
        while heard.count(b"event: ping") < 3:
            heard += line.recv(65536)
        it.room.fake.held = False
        while not heard.endswith(b"0\r\n\r\n"):
            heard += line.recv(65536)
    return [line.removeprefix("event: ") for line in heard.decode().split("\n") if line.startswith("event: ")]


def test_case_e4_pings_bridge_a_silent_engine_and_the_stream_ends_well(silent: Asker) -> None:
    silent.room.script("A<|im_end|>")
    heard = events_of_a_late_answer(silent)
    assert heard[:4] == ["message_start", "ping", "ping", "ping"]
    assert [name for name in heard[4:] if name != "ping"] == [
        "content_block_start", "content_block_delta", "content_block_stop", *ENDED,
    ]  # fmt: skip


def test_case_e2_f5_a_failure_behind_the_first_bytes_is_an_error_event_and_no_end(silent: Asker, fakes: Any) -> None:
    silent.room.fake.faults.append(fakes.Fault.HALF_BODY)
    heard = events_of_a_late_answer(silent)
    assert [name for name in heard if name != "ping"] == ["message_start", "error"]
    assert silent.agent.summary["failed_calls"] == {"engine_unreachable": 1}


def test_the_sdk_raises_on_a_failure_in_mid_stream_and_the_next_try_is_sampled(silent: Asker, fakes: Any) -> None:
    room = silent.room
    room.fake.faults.append(fakes.Fault.NOT_JSON)
    room.fake.token_delay_s = 0.0
    room.fake.held = True
    timer = threading.Timer(0.4, lambda: setattr(room.fake, "held", False))
    timer.start()
    with pytest.raises(anthropic.APIStatusError) as caught:
        silent.ask("Hi", stream=True)
    timer.join()
    room.script("A<|im_end|>")
    assert caught.value.body["error"]["type"] == "api_error"
    assert silent.ask("Hi", stream=True).content[0].text == "A"


def test_a_key_that_opens_nothing_is_an_authentication_error(wire_up: Callable[..., Any], tools_folder: Path) -> None:
    with wire_up(tools_folder, ("<|im_end|>",), admin_key="operator-key") as room:
        base = room.client.url
        with anthropic.Anthropic(base_url=f"{base}/r/x", api_key="wrong", max_retries=0) as client:
            for ask in (client.messages.create, client.messages.count_tokens):
                limit = {"max_tokens": 9} if ask == client.messages.create else {}
                with pytest.raises(anthropic.AuthenticationError) as caught:
                    ask(model="m", messages=[{"role": "user", "content": "Hi"}], **limit)
                assert caught.value.body["error"]["type"] == "authentication_error"
