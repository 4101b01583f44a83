"""Public case L3 end to end: weights are updated while agents work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from turnstile.client import Client
from turnstile.config import Settings
from turnstile.engines.smollm import say_nothing
from turnstile.server.local import serving
from turnstile.templates.tokenizer import Tokenizer
from turnstile.tokens import IdRun

LONG = "one two three four five six seven eight nine ten eleven twelve<|im_end|>"


def versions(agent: Any) -> list[tuple[int | None, int | None]]:
    (sequence,) = agent.handle.trajectory().sequences
    return [(part.policy_version_min, part.policy_version_max) for part, _ in sequence.sampled_segments()]


@pytest.fixture
def room(wire_up: Callable[..., Any], tools_folder: Path) -> Any:
    with wire_up(tools_folder, ("<|im_end|>",), keep_alive_s=0.1) as room:
        yield room


def test_case_l3_a_call_that_an_announcement_straddles_has_a_range_and_the_next_one_its_version(
    room: Any, wires: Any
) -> None:
    agent = room.agent()
    room.client.announce_policy(6)
    room.script(LONG, "Yes.<|im_end|>")
    room.fake.held = True
    with ThreadPoolExecutor(1) as clients:
        saying = clients.submit(agent.say, "Hi")
        wires.eventually(lambda: room.fake.requests)
        room.client.announce_policy(7)
        room.fake.held = False
        said = saying.result()
    agent.say("Hi", said.message, "more")
    assert versions(agent) == [(6, 7), (7, 7)]


def test_case_l3_held_calls_wait_with_signs_of_life_and_go_on_under_the_new_version(room: Any, wires: Any) -> None:
    agent = room.agent()
    room.client.announce_policy(6)
    page = room.client.hold_policy(deadline_s=30)
    assert [(each.running, each.waiting, each.held_until is not None) for each in page.engines] == [(0, 0, True)]
    room.script("Yes.<|im_end|>")
    before = len(room.fake.requests)
    with ThreadPoolExecutor(1) as clients:
        saying = clients.submit(agent.say, "Hi", stream=True)
        wires.eventually(lambda: room.get("/policy")["engines"][0]["waiting"])
        time.sleep(0.3)
        assert (saying.done(), len(room.fake.requests)) == (False, before)
        room.client.announce_policy(7)
        said = saying.result()
    assert (said.text, said.ended, versions(agent)) == ("Yes.", True, [(7, 7)])
    assert sum(line.startswith(b":") for line in said.body.split(b"\n")) >= 2
    assert agent.summary["notes"]["held_for_policy"] == 1


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/v1/chat/completions", {}, lambda error: error["error"]["code"] == "policy_hold_expired"),
        ("/v1/messages", {"max_tokens": 9}, lambda error: error["error"]["type"] == "overloaded_error"),
        ("/v1/responses", {"input": "Hi"}, lambda error: error["error"]["code"] == "policy_hold_expired"),
        ("/v1beta/models/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
         lambda error: error["error"]["status"] == "UNAVAILABLE"),
    ],
    ids=["chat", "messages", "responses", "gemini"],
)  # fmt: skip
def test_case_l3_when_the_deadline_passes_clients_are_told_in_their_dialect_to_come_back(
    room: Any, wires: Any, path: str, body: dict[str, Any], told: Callable[[Any], bool]
) -> None:
    agent = room.agent()
    base = f"{room.client.url}/r/{agent.handle.rollout_id}"
    messages = {"messages": [{"role": "user", "content": "Hi"}]} if path in ("/v1/chat/completions", "/v1/messages") else {}  # fmt: skip # noqa: E501
    model = {} if "v1beta" in path else {"model": "m"}
    room.client.hold_policy(deadline_s=0.1)
    answer = httpx.post(f"{base}{path}", json={**model, **messages, **body}, timeout=20, trust_env=False)
    health = httpx.get(f"{room.client.url}/healthz", trust_env=False).json()
    room.client.release_policy()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert told(answer.json())
    assert health["status"] == "degraded"
    (trouble,) = wires.troubles(health)
    assert "the deadline passed" in trouble
    assert agent.summary["failed_calls"] == {"policy_hold": 1}
    assert wires.troubles(httpx.get(f"{room.client.url}/healthz", trust_env=False).json()) == []


def test_case_l3_where_it_is_chosen_held_calls_go_on_when_the_deadline_passes(
    wire_up: Callable[..., Any], tools_folder: Path
) -> None:
    with wire_up(tools_folder, ("<|im_end|>",), hold_expiry="continue") as room:
        room.script("Yes.<|im_end|>")
        agent = room.agent()
        room.client.hold_policy(deadline_s=0.1)
        assert agent.say("Hi").text == "Yes."
        assert versions(agent) == [(None, None)]


def test_what_was_announced_survives_a_restart_of_turnstile(
    wire_up: Callable[..., Any], tools_folder: Path, tmp_path: Path
) -> None:
    with wire_up(tools_folder, ("<|im_end|>",), store=tmp_path) as room:
        room.client.announce_policy(7, label="v7")
        named = room.get("/policy")["engines"][0]["engine"]
    with wire_up(tools_folder, ("<|im_end|>",), store=tmp_path) as room:
        # Another engine, at another port: nothing is known of that one, and labels mean what they meant.
        assert room.get("/policy")["engines"][0]["engine"] != named
        assert room.get("/policy")["engines"][0]["version"] is None
        assert room.get("/policy")["labels"] == {"v7": 7}


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"version": -1}, "invalid_request", "version"),
        ({"version": "7"}, "invalid_request", "version"),
        ({"version": 2**63}, "invalid_request", "version"),
        ({}, "invalid_request", ""),
        ({"version": 7, "label": "8"}, "policy_label_contradicts", "label"),
        ({"version": 7, "engine": "nowhere:1"}, "engine_unknown", "engine"),
        ({"version": 7, "label": "x" * 257}, "invalid_request", "label"),
        ({"version": 7, "labels": "x"}, "invalid_request", ""),
    ],
)
def test_an_announcement_that_cannot_be_is_refused_by_name(
    room: Any, body: dict[str, Any], code: str, param: str
) -> None:
    answer = httpx.post(f"{room.client.url}/policy", content=json.dumps(body), trust_env=False)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"] or "") == (400, code, param)
    assert room.get("/policy")["engines"][0]["version"] is None


class Updated:
    """A Turnstile over an SGLang that is only wire, whose weights are updated while it samples."""

    def __init__(self, client: Client, fake: Any, tokenizer: Tokenizer) -> None:
        self.client = client
        self.fake = fake
        self.tokenizer = tokenizer
        self.rollout = client.rollout()

    def script(self, *texts: str) -> list[list[int]]:
        scripted = [self.tokenizer.encode(text).tolist() for text in texts]
        self.fake.script(*scripted)
        return scripted

    def ask(self, **fields: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.rollout.agent_key}"}
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
        url = f"{self.rollout.openai_base_url}/chat/completions"
        return httpx.post(url, json=body, headers=headers, timeout=30, trust_env=False)


@pytest.fixture
def updated(
    load_fake: Callable[[str], Any], wires: Any, tools_folder: Path, tokenizers_of: Callable[[Path], Tokenizer],
    tmp_path: Path,
) -> Iterator[Callable[[int], Updated]]:  # fmt: skip
    tokenizer = tokenizers_of(tools_folder)
    fake = load_fake("sglang_fake").SglangFake(
        wires.Rows(tokenizer),
        special=frozenset(token.id for token in tokenizer.added if token.special),
        eos=frozenset(tokenizer.encode("<|im_end|>")),
        model="m",
        encode=lambda text: tokenizer.encode(text).tolist(),
    )
    with ExitStack() as stack:

        def start(continuations: int) -> Updated:
            url = stack.enter_context(fake.in_thread())
            settings = Settings(
                engine=url, tokenizer=tools_folder, store=tmp_path, port=0, continue_aborted=continuations
            )
            return Updated(stack.enter_context(serving(settings, say_nothing)), fake, tokenizer)

        yield start


@pytest.mark.parametrize("stream", [False, True])
def test_case_l3_an_answer_that_an_update_broke_reaches_the_client_as_one_and_the_record_says_where_it_joins(
    updated: Callable[[int], Updated], load_fake: Callable[[str], Any], stream: bool
) -> None:
    room = updated(1)
    first, second = room.script("one two three four five", " and that is all.<|im_end|>")
    room.fake.weight_version = "6"
    room.fake.faults.append(load_fake("sglang_fake").Fault.UPDATE)
    answer = room.ask(stream=stream)
    sampled = first[:3] + second
    text = room.tokenizer.decode(IdRun.of(sampled[:-1]))
    if stream:
        pieces = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        told = "".join(piece["choices"][0]["delta"].get("content") or "" for piece in pieces if piece["choices"])
        assert (told, answer.text.rstrip().endswith("data: [DONE]")) == (text, True)
    else:
        choice = answer.json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (text, "stop")
    rollout = room.rollout.trajectory()
    (sequence,) = rollout.sequences
    assert sequence.token_ids.tolist()[-len(sampled) :] == sampled
    assert rollout.token_counts.trainable == len(sampled)
    facts = rollout.extra["turnstile.calls"]["c0"]
    assert [call["ids"] for call in facts["engine_calls"]] == [3, len(second)]
    assert {"code": "continued_after_abort", "detail": "at id 3"} in facts["notes"]


def test_case_l3_by_default_the_client_is_told_and_nothing_is_trained(
    updated: Callable[[int], Updated], load_fake: Callable[[str], Any]
) -> None:
    room = updated(0)
    first, _ = room.script("one two three four five", "Again.<|im_end|>")
    room.fake.faults.append(load_fake("sglang_fake").Fault.UPDATE)
    answer = room.ask()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_aborted")
    assert answer.headers["retry-after"] == "1"
    assert room.ask().json()["choices"][0]["message"]["content"] == "Again."
    rollout = room.rollout.trajectory()
    assert [(call.finish, call.kind_reason) for call in rollout.calls] == [("error", "engine_aborted"), ("stop", None)]
    assert rollout.token_counts.trainable == len(room.tokenizer.encode("Again.<|im_end|>"))
    assert rollout.calls[0].usage.completion_tokens == len(first[:3])
