"""Drift of a real model's answers: found, while they are given and afterwards, and counted as a slow recount does."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result
from openai import OpenAI
from typer.testing import CliRunner

from turnstile.cli import app
from turnstile.client import Client

pytestmark = pytest.mark.engine

QUESTIONS = (
    ("Write three short lines about the sea.", "Now write JSON with name and price of a boat.", "And a poem?"),
    ("List five invented town names.", "Add a number to each.", "Which one is the oldest?"),
    ("Write a small Python function.", "Add a docstring.", "Explain it, line by line."),
    ("Say something odd.", "Odder!", "And in capital letters."),
)

MOST = 16
"""Rollouts, at most."""


def ask(client: Client, rollout_id: str, questions: tuple[str, ...]) -> dict[str, Any]:
    """Some turns at temperature 0.9 with fixed seeds, and a second answer to the last question."""
    handle = client.rollout(rollout_id, group_id=f"g{int(rollout_id[1:]) % 2}")
    with OpenAI(base_url=handle.openai_base_url, api_key=handle.agent_key, max_retries=0) as agent:
        messages: list[Any] = []
        for at, question in enumerate(questions):
            messages.append({"role": "user", "content": question})
            asked: dict[str, Any] = {
                "temperature": 0.9,
                "seed": 10 * int(rollout_id[1:]) + at,
                "max_tokens": 64,
                "n": 1 + at // 2,
            }
            answer = agent.chat.completions.create(model="smol", messages=messages, **asked)
            messages.append({"role": "assistant", "content": answer.choices[-1].message.content})
    return json.loads(client.post(f"/rollouts/{handle.rollout_id}/finish", {"reward": 1.0}))


class Recorded(msgspec.Struct, frozen=True):
    store: Path
    client: Client
    summaries: list[dict[str, Any]]


@pytest.fixture(scope="module")
def recorded(start: Callable[..., Client], tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    store = tmp_path_factory.mktemp("drifting")
    client = start(store=store)
    summaries = [ask(client, f"r{at}", each) for at, each in enumerate(QUESTIONS)]
    # Another machine rounds otherwise and samples otherwise: there the same seeds may need some rollouts more.
    while not any("retokenization" in each["drift"]["calls_by_kind"] for each in summaries) and len(summaries) < MOST:
        summaries.append(ask(client, f"r{len(summaries)}", QUESTIONS[len(summaries) % len(QUESTIONS)]))
    return Recorded(store, client, summaries)


@pytest.fixture(scope="module")
def recounted(recorded: Recorded) -> list[dict[str, Any]]:
    """What the slow script says, which shares no code with the report."""
    script = Path(__file__).parent.parent / "recount_drift.py"
    spec = importlib.util.spec_from_file_location("recount_drift", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.recount(recorded.store)


def drift(recorded: Recorded, *options: str) -> list[dict[str, Any]]:
    told: Result = CliRunner().invoke(app, ["drift", str(recorded.store), "--json", *options])
    assert told.exit_code == 0, told.output
    return [json.loads(line) for line in told.stdout.splitlines()]


def test_a_recorded_run_at_temperature_09_has_real_retokenization_drift(recorded: Recorded) -> None:
    (whole,) = drift(recorded, "--by", "store")
    figures = whole["figures"]
    rollouts = len(recorded.summaries)
    assert (figures["calls"], figures["calls_compared"], figures["sequences"]) == (
        3 * rollouts,
        3 * rollouts,
        2 * rollouts,
    )
    assert figures["wrong_by_kind"]["retokenization"] > 0
    assert 0 < figures["prompt_wrong"] < figures["prompt_sampled"]
    assert figures["calls_by_kind"]["retokenization"] > 0
    assert sum(figures["calls_by_kind"].values()) == figures["calls_differing"]


def test_every_number_of_the_report_is_that_of_an_independent_recount(
    recorded: Recorded, recounted: list[dict[str, Any]]
) -> None:
    reports = drift(recorded)
    for report in reports:
        assert (report.pop("attempt"), report.pop("group_id")) == (1, f"g{int(report['rollout_id'][1:]) % 2}")
        assert report.pop("problem") == ""
        for found in report["differences"]:
            assert (found.pop("held_ids") and found.pop("rendered_ids")) or found["kind"] != "retokenization"
        for call in report["by_call"]:
            assert call.pop("history") in ("root", "spliced")
    assert reports == recounted


def test_groups_and_the_store_are_the_sums_of_the_recount(recorded: Recorded, recounted: list[dict[str, Any]]) -> None:
    def sums(rollouts: list[dict[str, Any]]) -> dict[str, int]:
        return {
            name: sum(each[name] for each in rollouts) for name, value in recounted[0].items() if type(value) is int
        }

    def numbers(row: dict[str, Any]) -> dict[str, int]:
        return {name: value for name, value in row["figures"].items() if type(value) is int}

    groups = {each["group_id"]: each for each in drift(recorded, "--by", "group")}
    for name, row in groups.items():
        members = [each for each in recounted if f"g{int(each['rollout_id'][1:]) % 2}" == name]
        assert (row["rollouts"], numbers(row)) == (len(members), sums(members))
    (whole,) = drift(recorded, "--by", "store")
    assert (whole["rollouts"], numbers(whole)) == (len(recounted), sums(recounted))


def test_the_figures_of_a_finish_and_of_metrics_are_those_of_the_recount(
    recorded: Recorded, recounted: list[dict[str, Any]]
) -> None:
    for summary, counted in zip(recorded.summaries, recounted, strict=True):
        assert summary["drift"] == {name: counted[name] for name in summary["drift"]}
        asked = json.loads(recorded.client.get(f"/rollouts/{counted['rollout_id']}/drift"))
        assert {name: asked[name] for name in summary["drift"]} == summary["drift"]
        assert asked["wrong"] == counted["wrong"]
    lines = recorded.client.get("/metrics").decode().splitlines()
    figures = dict(line.rsplit(" ", 1) for line in lines if line.startswith("turnstile_drift"))
    wrong = sum(each["prompt_wrong"] for each in recounted)
    assert float(figures['turnstile_drift_tokens_total{side="wrong"}']) == wrong
    equal = sum(each["calls"] - each["calls_differing"] for each in recounted)
    assert float(figures['turnstile_drift_calls_total{result="equal"}']) == equal


def test_every_rollout_of_the_run_replays_to_the_recorded_ids(recorded: Recorded) -> None:
    for summary in recorded.summaries:
        told = CliRunner().invoke(app, ["replay", str(recorded.store), summary["rollout_id"]])
        assert (told.exit_code, told.stdout.split(":")[0]) == (0, f"equal  {summary['rollout_id']}"), told.output


def test_a_policy_that_follows_the_template_would_have_forked_where_the_prompts_drift(
    recorded: Recorded, recounted: list[dict[str, Any]]
) -> None:
    for counted in recounted:
        arguments = ["replay", str(recorded.store), counted["rollout_id"], "--retention", "template", "--json"]
        calls = json.loads(CliRunner().invoke(app, arguments).stdout)["calls"]
        drifting = {call["call_id"]: call["index"] for call in counted["by_call"] if call["index"] is not None}
        found = {call["call_id"]: call["difference"]["index"] for call in calls if call["difference"]}
        assert found == drifting
