"""vLLM is killed in the middle of ten rollouts, and started again; and its weights change in the middle of one."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import anthropic
import google.genai.errors
import httpx
import openai
import pytest

from turnstile.history.forest import Forest
from turnstile.store import Reader

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

CROWD = 10
DIALECTS = ("chat", "messages", "responses", "gemini")
PATIENCE_S = 300.0
ERRORS: dict[str, tuple[type[Exception], ...]] = {
    "chat": (openai.APIError,),
    "messages": (anthropic.APIError,),
    "responses": (openai.APIError,),
    "gemini": (google.genai.errors.APIError, httpx.TransportError),
}
"""How each SDK tells its caller that a stream failed. Gemini's is cut off behind its error, which some clients skip."""


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def once_it_is_back(agent: Any, limit: int) -> Any:
    """An answer, asked for again while the engine is not known to be back, as any client with retries does."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return agent.turn(tools=False, limit=limit)
        except (openai.InternalServerError, anthropic.APIStatusError, google.genai.errors.ServerError):
            if time.monotonic() > deadline:
                raise
            time.sleep(1.0)


def forests(store: Path, handles: list[Any]) -> list[Forest]:
    with Reader.open(store) as reader:
        return [Forest.of(reader.records(handle.rollout_id)) for handle in handles]


def test_ten_rollouts_outlive_a_kill_of_the_engine_and_none_keeps_half_an_answer(
    killable_vllm: Any, start_turnstile: Any, real_agents: Any
) -> None:
    client, store = start_turnstile(killable_vllm.url)
    with ExitStack() as stack, ThreadPoolExecutor(CROWD) as pool:
        handles = [stack.enter_context(client.rollout()) for _ in range(CROWD)]
        crowd = [real_agents[DIALECTS[at % 4]](handle, stack) for at, handle in enumerate(handles)]
        for agent in crowd:
            agent.user("say hello")
        first = list(pool.map(lambda agent: agent.turn(tools=False), crowd))
        assert {said.text.strip() for said in first} == {"Hello there."}

        for agent in crowd:
            agent.user("sing")
            agent.arrivals_s = []
        singing: list[Future[Any]] = [pool.submit(agent.turn, tools=False, limit=1900) for agent in crowd]
        wait_for(lambda: all(len(agent.arrivals_s) > 3 for agent in crowd))
        assert not any(each.done() for each in singing)
        killable_vllm.kill()
        problems = [future.exception(PATIENCE_S) for future in singing]
        after_the_kill = forests(store, handles)
        killable_vllm.start()
        for agent, problem in zip(crowd, problems, strict=True):
            assert problem is not None, f"{agent.name}: a broken answer ended as a whole one"
            assert isinstance(problem, (*ERRORS[agent.name], real_agents["failed"])), f"{agent.name}: {problem!r}"
        for forest in after_the_kill:
            assert [state.committed is not None for state in forest.calls.values()] == [True, False]

        again = list(pool.map(lambda agent: once_it_is_back(agent, limit=12), crowd))
        assert len(again) == CROWD
        for handle in handles:
            rollout = handle.trajectory()
            kept = [call for call in rollout.calls if call.finish != "error"]
            assert [(call.history, call.complete) for call in kept] == [("root", True), ("spliced", True)]
            (sequence,) = rollout.sequences
            assert len(list(sequence.sampled_segments())) == 2


def post(url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = Request(url + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urlopen(request, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


def test_weights_that_change_in_mid_answer_are_recorded_as_the_engine_says(
    killable_vllm: Any, start_turnstile: Any, real_agents: Any, tap: Any
) -> None:
    tapped = tap(killable_vllm.url)
    client, _ = start_turnstile(tapped.url)
    post(killable_vllm.url, "/update_weight_version", {"new_version": "6"})
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        handle = stack.enter_context(client.rollout())
        agent = real_agents["chat"](handle, stack)
        agent.user("sing")
        tapped.heard.clear()
        singing = pool.submit(agent.turn, tools=False, limit=600)
        wait_for(lambda: len(agent.arrivals_s) > 30)
        post(killable_vllm.url, "/update_weight_version", {"new_version": "7"})
        singing.result(PATIENCE_S)
        (sequence,) = handle.trajectory().sequences
    told = re.findall(rb'"weight_versions":(\[\{.*?\}\])', bytes(tapped.heard))
    spans = [(int(each["version"]), each["start"], each["end"]) for each in json.loads(told[-1])]
    assert [version for version, _, _ in spans] == [6, 7]
    recorded = [
        (part.policy_version_min, part.start - sequence.prompt_length, part.end - sequence.prompt_length)
        for part, _ in sequence.sampled_segments()
    ]
    assert recorded == spans
    assert all(part.policy_version_min == part.policy_version_max for part, _ in sequence.sampled_segments())
    counted = Counter(sequence.versions_T())
    assert counted[6] + counted[7] == 600
