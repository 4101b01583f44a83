"""The same weights under vLLM and llama.cpp, whole rollouts through every dialect's SDK and a whole Turnstile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile.trajectory.files import read, write
from turnstile.trajectory.format import Rollout
from turnstile.trajectory.validate import validate_file

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

ENGINES = ("vLLM", "llama.cpp")
DIALECTS = ("chat", "messages", "responses", "gemini")
ROUTE = ("Paris", "Rome", "Oslo", "Lima", "Cairo")
"""Where the tiny model goes."""
NEAR = 5e-3
"""How far two engines' log-probabilities of one set of weights may be apart, both in float32."""


def six_turns(agent: Any) -> list[Any]:
    """A user's question, five calls of the tool, and the answer."""
    agent.user("what is the weather in this town")
    said = [agent.turn()]
    for city in ROUTE:
        assert said[-1].cities == (city,)
        agent.results([f"{city}: sunny, 21 C"])
        said.append(agent.turn())
    return said


def exported(handle: Any, folder: Path, name: str) -> Rollout:
    file = folder / f"{name}.jsonl"
    write(file, [handle.trajectory()])
    assert [str(found) for found in validate_file(file) if found.code.startswith("E")] == []
    (rollout,) = read(file)
    return rollout


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_rollout_of_six_turns_is_the_same_on_both_engines_to_the_last_id(
    turnstile_over: Callable[[str], Any], agent_of: Any, tmp_path: Path, dialect: str
) -> None:
    rollouts: dict[str, Rollout] = {}
    for engine in ENGINES:
        with agent_of(turnstile_over(engine), dialect) as (agent, handle):
            said = six_turns(agent)
            assert (said[-1].text.strip(), said[-1].cities) == ("It is sunny in all five cities.", ())
            assert all(len(each.arrivals_s) > 1 for each in said)
            rollouts[engine] = exported(handle, tmp_path, f"{engine}-{dialect}")
    vllm, llamacpp = (rollouts[engine] for engine in ENGINES)
    for rollout in rollouts.values():
        assert [call.history for call in rollout.calls] == ["root"] + ["spliced"] * 5
        assert all(call.complete for call in rollout.calls)
        assert len(rollout.sequences) == 1
        assert len(list(rollout.sequences[0].sampled_segments())) == 6
        assert rollout.token_counts.trainable == rollout.token_counts.sampled
    # One run of ids holds every prompt and every answer, so equal runs are equal prompts and equal answers.
    ours, theirs = vllm.sequences[0], llamacpp.sequences[0]
    assert ours.token_ids == theirs.token_ids
    assert [(each.start, each.end, each.kind) for each in ours.segments] == [
        (each.start, each.end, each.kind) for each in theirs.segments
    ]
    apart = [abs(a - b) for a, b in zip(ours.logprobs.tolist(), theirs.logprobs.tolist(), strict=True)]
    assert max(apart) <= NEAR
    assert min(ours.logprobs.tolist()) < -0.05, "numbers near nought would agree whatever they mean"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_tokens_reach_the_client_while_the_rest_is_still_sampled(
    turnstile_over: Callable[[str], Any], agent_of: Any, dialect: str, engine: str
) -> None:
    with agent_of(turnstile_over(engine), dialect) as (agent, _):
        agent.user("sing")
        said = agent.turn(tools=False, limit=400)
    assert said.text.count("la") > 300
    # The engine needs seconds for this on the fastest machine; what was held back would come in a moment.
    assert said.arrivals_s[-1] - said.arrivals_s[0] > 0.3
    # Not half of the pieces: a client that the machine leaves waiting finds many at once.
    assert sum(each < said.arrivals_s[-1] - 0.1 for each in said.arrivals_s) >= 8
