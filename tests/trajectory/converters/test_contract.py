"""Every converter: golden samples by hand from the trainer's source, and the rules that hold for all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.trajectory.converters import CONVERTERS
from turnstile.trajectory.converters.base import Converter, Rows, Weights
from turnstile.trajectory.converters.conversion import convert
from turnstile.trajectory.shapes import Rollout
from turnstile.trajectory.validate import validate

OPTIONS: dict[str, dict[str, Any]] = {"trl": {"one_sequence": "last"}, "prime_rl": {"env_name": "calc"}}


@pytest.mark.parametrize("converter", CONVERTERS, ids=lambda each: each.name)
def test_samples_are_what_the_trainers_source_asks_for(converter: Converter, samples_of, golden) -> None:
    assert samples_of(converter.name, **OPTIONS.get(converter.name, {})) == golden(converter.name)


def test_the_rollouts_of_the_golden_samples_stand_beside_them(group, golden) -> None:
    assert golden("rollouts") == group


def test_the_rollouts_of_the_golden_samples_are_valid(rollouts: list[Rollout]) -> None:
    assert [str(line) for rollout in rollouts for line in validate(rollout)] == []


# Where each trainer's own shape keeps the ids, which of them it trains, and their log-probabilities.


def _shifted(sample: dict[str, Any]) -> list[tuple[list[int], list[bool], list[float]]]:
    inputs = sample["loss_fn_inputs"]
    ids = [token for chunk in sample["model_input"]["chunks"] for token in chunk["tokens"]]
    assert ids[1:] == inputs["target_tokens"]["data"][:-1]
    ids = [*ids, inputs["target_tokens"]["data"][-1]]
    trained = [False, *(value != 0.0 for value in inputs["advantages"]["data"])]
    return [(ids, trained, [0.0, *inputs["logprobs"]["data"]])]


def _two_regions(prompt: list[int], response: list[int], mask: list[int], logprobs: list[float]) -> Any:
    front = len(prompt)
    return [*prompt, *response], [False] * front + [value == 1 for value in mask], [0.0] * front + logprobs


def _message_log(sample: dict[str, Any]) -> Any:
    ids: list[int] = []
    trained: list[bool] = []
    logprobs: list[float] = []
    for message in sample["message_log"]:
        count = len(message["token_ids"])
        ids += message["token_ids"]
        trained += [message["role"] == "assistant" and "generation_logprobs" in message] * count
        logprobs += message.get("generation_logprobs", [0.0] * count)
    return [(ids, trained, logprobs)]


def _extending(items: list[tuple[list[int], list[int], list[float]]]) -> Any:
    """Prompt, completion and numbers of each call in turn, where each prompt has to extend all that was before."""
    ids: list[int] = []
    trained: list[bool] = []
    numbers: list[float] = []
    for prompt, completion, logprobs in items:
        assert prompt[: len(ids)] == ids
        added = len(prompt) - len(ids)
        ids = [*prompt, *completion]
        trained += [False] * added + [True] * len(completion)
        numbers += [0.0] * added + logprobs
    return ids, trained, numbers


def _of_choices(history: dict[str, Any]) -> Any:
    choices = [each for each in history["messages_and_choices"] if "finish_reason" in each]
    return _extending(
        [
            (each["prompt_token_ids"], each["token_ids"], [one["logprob"] for one in each["logprobs"]["content"]])
            for each in choices
        ]
    )


def _of_trace(sample: dict[str, Any]) -> Any:
    nodes = sample["nodes"]
    parents = {node["parent"] for node in nodes}
    seen: set[int] = set()
    rows = []
    for leaf in (number for number in range(len(nodes)) if number not in parents):
        path: list[int] = []
        at: int | None = leaf
        while at is not None:
            path.insert(0, at)
            at = nodes[at]["parent"]
        ids: list[int] = []
        trained: list[bool] = []
        logprobs: list[float] = []
        for number in path:
            node = nodes[number]
            assert len(node["mask"]) == len(node["token_ids"])
            known = iter(node["logprobs"])
            ids += node["token_ids"]
            logprobs += [next(known) if counted else 0.0 for counted in node["mask"]]
            assert next(known, None) is None
            # A trainer that takes branches apart trains a node in the first branch that has it.
            trained += [counted and number not in seen for counted in node["mask"]]
        seen |= set(path)
        rows.append((ids, trained, logprobs))
    return rows


def _of_action_ranges(sample: dict[str, Any]) -> Any:
    trained = [False] * len(sample["observation_tokens"])
    for start, end in sample["action_ranges"]:
        trained[start:end] = [True] * (end - start)
    return [(sample["observation_tokens"], trained, sample["rollout_log_probs"])]


READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "trl": lambda s: [_two_regions(s["prompt_ids"], s["completion_ids"], s["env_mask"], s["logprobs"])],
    "trl_async": lambda s: [(s["input_ids"], [v == 1 for v in s["completion_mask"]], s["old_log_probs"])],
    "verl": lambda s: [
        _two_regions(o["prompt_ids"], o["response_ids"], o["response_mask"], o["response_logprobs"])
        for o in s["outputs"]
    ],
    "prime_rl": lambda s: [(s["token_ids"], s["mask"], s["logprobs"])],
    "verifiers": _of_trace,
    "slime": lambda s: [
        _two_regions(
            s["tokens"][: -s["response_length"]],
            s["tokens"][-s["response_length"] :],
            s["loss_mask"],
            s["rollout_log_probs"],
        )
    ],
    "skyrl": lambda s: [
        _two_regions(*row)
        for row in zip(s["prompt_token_ids"], s["response_ids"], s["loss_masks"], s["rollout_logprobs"], strict=True)
    ],
    "tinker": _shifted,
    "nemo_rl": _message_log,
    "nemo_gym": lambda s: [
        _extending(
            [
                (item["prompt_token_ids"], item["generation_token_ids"], item["generation_log_probs"])
                for item in s["response"]["output"]
            ]
        )
    ],
    "areal": lambda s: [(s["input_ids"][0], [v == 1 for v in s["loss_mask"][0]], s["logprobs"][0])],
    "openrlhf": _of_action_ranges,
    "atropos": lambda s: [
        (ids, [each != -100 for each in mask], logprobs)
        for ids, mask, logprobs in zip(s["tokens"], s["masks"], s["inference_logprobs"], strict=True)
    ],
    "art": lambda s: [_of_choices(s), *(_of_choices(each) for each in s["additional_histories"])],
}
READERS["miles"] = READERS["slime"]
TRAINED_ON = [converter for converter in CONVERTERS if converter.name != "atif"]


def _expected(rollout: Rollout) -> dict[str, dict[int, tuple[int, float]]]:
    """By sequence: which token indices are trained, with id and log-probability."""
    rows: dict[str, dict[int, tuple[int, float]]] = {}
    for sequence in rollout.sequences:
        known = sequence.logprobs.tolist()
        trained = {
            segment.start + at: (sequence.token_ids[segment.start + at], known[before + at])
            for segment, before in sequence.sampled_segments()
            if segment.trainable
            for at in range(segment.end - segment.start)
        }
        if trained:
            rows[sequence.sequence_id] = trained  # pyright: ignore[reportArgumentType]
    return rows


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_whatever_a_rollout_went_through_all_trainers_train_the_same_tokens(data, any_scored) -> None:
    rollout = any_scored(data)
    expected = _expected(rollout)
    weighed = any(weight not in (0.0, 1.0) for each in rollout.sequences for weight in each.weights_T())
    for converter in TRAINED_ON if expected else ():
        takes_all = converter.facts.rows is not Rows.ONE or len(expected) == 1
        if takes_all and (converter.facts.weights is Weights.CARRIED or not weighed):
            assert _trained_by(converter, rollout) == list(expected.values()), converter.name


def _trained_by(converter: Converter, rollout: Rollout) -> list[dict[int, tuple[int, float]]]:
    """By sequence: which token indices a trainer trains, with id and log-probability."""
    found: list[dict[int, tuple[int, float]]] = []
    for converted in convert([rollout], converter.name, advantage="reward", raw_logprobs="allow"):
        for ids, trained, logprobs in READERS[converter.name](json.loads(json.dumps(converted.sample))):
            assert len(trained) == len(ids) == len(logprobs)
            found.append({at: (ids[at], logprobs[at]) for at, counted in enumerate(trained) if counted})
    return found


def test_every_trainer_has_a_reader_here() -> None:
    assert {converter.name for converter in TRAINED_ON} == set(READERS)


@pytest.mark.parametrize("converter", TRAINED_ON, ids=lambda each: each.name)
def test_case_l4_each_number_stands_at_its_token(converter: Converter, group, samples_of) -> None:
    one = group[1]
    one["sequences"] = one["sequences"][:1]
    options = {"advantage": "reward"}
    one["reward"] = 1.0
    ((ids, trained, logprobs),) = (
        row for sample in samples_of(converter.name, [one], **options) for row in READERS[converter.name](sample)
    )
    assert ids[-4:] == [30, 31, 32, 2]
    assert [number for number, counted in zip(logprobs, trained, strict=True) if counted] == [-0.125, -0.25, -0.5, -1]
    assert trained == [False] * 5 + [True] * 4


@pytest.mark.parametrize("converter", TRAINED_ON, ids=lambda each: each.name)
def test_case_l2_a_shared_answer_is_trained_once(converter: Converter, group, samples_of) -> None:
    """The first rollout: an answer, behind which the tool ran twice. Nine tokens were sampled."""
    one = group[0]
    if converter.facts.rows is Rows.ONE:
        return
    trained = [
        counted
        for sample in samples_of(converter.name, [one], advantage="reward")
        for _, row, _ in READERS[converter.name](sample)
        for counted in row
    ]
    assert sum(trained) == one["token_counts"]["sampled"] == 9
