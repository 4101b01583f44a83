"""The judge of the runs: a trajectory that is altered is found out, and one that is as it was is not."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace as with_fields

from turnstile.config import Settings
from turnstile.engines.smollm import say_nothing
from turnstile.server.local import serving
from turnstile.templates.tokenizer import Tokenizer
from turnstile.tokens import IdRun

HERE = Path(__file__).parent
MODULES = ("engine", "catalogue", "played", "install", "ending", "findings", "inside")
SHELL = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


@pytest.fixture(scope="module")
def programs() -> Generator[dict[str, Any]]:
    """The modules, which are no package's."""
    before, path = set(sys.modules), list(sys.path)
    sys.path.insert(0, str(HERE))
    try:
        yield {name: importlib.import_module(name) for name in MODULES}
    finally:
        sys.path[:] = path
        for name in (set(sys.modules) - before) & set(MODULES):
            del sys.modules[name]


def _played(url: str, key: str, repository: Path) -> None:
    """The least harness there is, in process: chat completions and a shell."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Fix the bug in calc.py."}]
    with httpx.Client(headers={"authorization": f"Bearer {key}"}, trust_env=False, timeout=60) as http:
        while True:
            body = {"model": "policy", "messages": messages, "tools": [SHELL]}
            said = http.post(f"{url}/v1/chat/completions", json=body).raise_for_status().json()["choices"][0]["message"]
            messages.append(said)
            for call in said.get("tool_calls") or ():
                command = json.loads(call["function"]["arguments"])["command"]
                done = subprocess.run(command, shell=True, cwd=repository, capture_output=True, text=True, check=False)
                result = f"{done.stdout}{done.stderr}"
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            if not said.get("tool_calls"):
                return


@pytest.fixture(scope="module")
def recorded(
    programs: dict[str, Any],
    family: Callable[[str], Path],
    tokenizers_of: Callable[[Path], Tokenizer],
    tmp_path_factory: pytest.TempPathFactory,
) -> Any:
    """The findings of a run in which all went well."""
    at = tmp_path_factory.mktemp("run")
    engine, played, catalogue = programs["engine"], programs["played"], programs["catalogue"]
    harness = next(each for each in catalogue.HARNESSES if each.name == "openai-agents 0.24.0 chat")
    repository = programs["inside"].repository(at / "repo")
    folder = family("qwen3")
    model = played.PlayedModel(harness.hands(repository))
    fake = engine.PlayedEngine(tokenizers_of(folder), model, "policy", engine.Trouble.NONE)
    with fake.in_thread() as url:
        settings = Settings(engine=url, tokenizer=folder, store=at / "store", port=0, model="policy")
        with serving(settings, say_nothing) as client:
            handle = client.rollout("ro")
            _played(f"{client.url}/r/ro", handle.agent_key or "none", repository)
            handle.finish(reward=1.0)
            rollout = handle.trajectory()
    return programs["findings"].Findings(harness, engine.Trouble.NONE, fake, rollout, repository, at)


def _problems(recorded: Any, **fields: Any) -> list[str]:
    return replace(recorded, rollout=with_fields(recorded.rollout, **fields)).report().problems


def _with_call(recorded: Any, line: int, **fields: Any) -> tuple[Any, ...]:
    calls = recorded.rollout.calls
    return (*calls[:line], with_fields(calls[line], **fields), *calls[line + 1 :])


pytestmark = pytest.mark.families


def test_a_run_in_which_all_went_well_has_no_problem(recorded: Any) -> None:
    report = recorded.report()
    assert (report.problems, report.requests, report.roots, report.forks) == ([], 6, 1, [])


def test_a_fork_is_found(recorded: Any) -> None:
    calls = _with_call(recorded, 2, history="forked", history_reason="assistant_edited:3")
    assert _problems(recorded, calls=calls) == ["c2 is forked:assistant_edited"]


def test_a_second_root_is_found(recorded: Any) -> None:
    assert _problems(recorded, calls=_with_call(recorded, 3, history="root")) == ["The main agent has 2 roots"]


def test_a_sequence_that_stands_there_twice_is_found(recorded: Any) -> None:
    problems = _problems(recorded, sequences=recorded.rollout.sequences * 2)
    assert {f"Call {line} is trained 2 times" for line in range(6)} <= set(problems)
    assert any(problem.startswith("Trained 2 times, given 1 times: ") for problem in problems)


def test_lost_tokens_are_found(recorded: Any) -> None:
    counts = recorded.rollout.token_counts
    problems = _problems(recorded, token_counts=with_fields(counts, trainable=counts.trainable - 1))
    assert any(problem.startswith("Tokens are lost: ") for problem in problems)


def test_tokens_that_the_rollout_never_heard_of_are_missed(recorded: Any) -> None:
    counts = recorded.rollout.token_counts
    problems = _problems(
        recorded, token_counts=with_fields(counts, sampled=counts.sampled - 1, trainable=counts.trainable - 1)
    )
    assert f"The engine sampled {counts.sampled} tokens, the trajectory counts {counts.sampled - 1}" in problems


def test_other_ids_are_found(recorded: Any) -> None:
    (sequence,) = recorded.rollout.sequences
    ids = sequence.token_ids.tolist()
    ids[sequence.prompt_length] += 1
    problems = _problems(recorded, sequences=(with_fields(sequence, token_ids=IdRun.of(ids)),))
    assert any(problem.startswith("Trained 1 times, given 0 times: ") for problem in problems)
    assert any("E402" in problem for problem in problems)


@pytest.mark.parametrize(
    ("finish", "noted", "problem"),
    [
        ("stop", "c2", "c2 goes on from an aborted answer, but its parent is none"),
        ("abort", "c3", "c1 broke off and is trained, but no call goes on from it"),
        ("abort", "c2", None),
    ],
)
def test_a_call_that_goes_on_from_an_aborted_answer_stands_on_its_trained_beginning(
    recorded: Any, finish: str, noted: str, problem: str | None
) -> None:
    note = {"code": "continued_from_aborted", "detail": "3 of 4 ids"}
    extra = recorded.rollout.extra | {"turnstile.calls": {noted: {"notes": [note]}}}
    problems = _problems(recorded, calls=_with_call(recorded, 1, finish=finish), extra=extra)
    about = [each for each in problems if each.startswith(("c1 ", "c2 "))]
    assert about == ([] if problem is None else [problem])
