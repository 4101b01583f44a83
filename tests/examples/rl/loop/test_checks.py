"""What ends a run: another version, another count, other numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

import turnstile
from loop.checks import RunIsWrong, check_counts, check_difference, check_proxy, check_rows, check_versions
from loop.clients import PatientClient
from turnstile.trajectory.format import Rollout


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PatientClient]:
    with turnstile.serve(engine="embedded", store=tmp_path_factory.mktemp("store")) as served:
        served.announce_policy(7)
        yield PatientClient(served.url)


@pytest.fixture(scope="module")
def rollout(client: PatientClient) -> Rollout:
    with client.rollout() as handle, OpenAI(base_url=handle.openai_base_url, api_key=handle.agent_key) as agent:
        message = {"role": "user", "content": "Name a colour."}
        agent.chat.completions.create(model="smollm2-135m", messages=[message], max_tokens=8)  # type: ignore[list-item]
        handle.finish(reward=1.0)
        return handle.trajectory()


def trained(rollout: Rollout) -> int:
    (sequence,) = rollout.sequences
    return sum(each.end - each.start for each in sequence.segments if each.trainable)


def test_tokens_of_the_policys_version_pass(rollout: Rollout) -> None:
    check_versions([rollout], 7)


def test_tokens_of_another_version_end_the_run(rollout: Rollout) -> None:
    with pytest.raises(RunIsWrong, match="drawn by version 7 to 7, and the policy is at 8"):
        check_versions([rollout], 8)


def test_a_row_trains_all_that_its_rollout_exports(rollout: Rollout) -> None:
    count = trained(rollout)
    assert check_rows([rollout], [[0] * 3 + [1] * count]) == count


def test_a_row_that_trains_one_token_more_ends_the_run(rollout: Rollout) -> None:
    with pytest.raises(RunIsWrong, match=f"and its row {trained(rollout) + 1}"):
        check_rows([rollout], [[1] * (trained(rollout) + 1)])


def test_a_row_of_which_nothing_is_trained_passes(rollout: Rollout) -> None:
    assert check_rows([rollout], [[0]]) == 0


def test_another_tokenizer_in_the_proxy_ends_the_run(rollout: Rollout) -> None:
    check_proxy(rollout, rollout.heads[0].tokenizer_sha256)
    with pytest.raises(RunIsWrong, match="the trainer's other"):
        check_proxy(rollout, "other")


def test_a_loss_that_counts_other_tokens_ends_the_run() -> None:
    check_counts(10, 10)
    with pytest.raises(RunIsWrong, match="10 tokens were exported"):
        check_counts(10, 11)


@pytest.mark.parametrize("largest", [2e-4, float("nan"), float("inf")])
def test_numbers_that_differ_end_the_run(largest: float) -> None:
    check_difference(9e-5, 1e-4)
    with pytest.raises(RunIsWrong):
        check_difference(largest, 1e-4)


def test_what_was_fetched_is_kept(client: PatientClient, rollout: Rollout) -> None:
    assert client.taken[rollout.rollout_id] == rollout


def test_a_model_made_of_other_inputs_is_another_one(tmp_path: Path) -> None:
    from dataclasses import replace

    from loop.settings import ModelSettings
    from loop.warm import inputs_sha256

    settings = ModelSettings(warm_start="text.warm_start", inputs=("text/tasks.py",))
    others = [replace(settings, seed=1), replace(settings, arguments=("20",)), replace(settings, inputs=())]
    assert len({inputs_sha256(each) for each in (settings, *others)}) == 4
