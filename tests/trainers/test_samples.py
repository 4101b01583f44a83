"""The golden samples taken by the classes of the real trainers, each in an environment of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

# The imports of a trainer take most of the time, and minutes where the machine is busy.
pytestmark = pytest.mark.timeout(400)
LIMIT_S = 380.0

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parent.parent.parent
GOLDEN = Path(__file__).parent.parent / "trajectory" / "converters" / "golden"


def golden(name: str) -> list[dict[str, Any]]:
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def rows() -> list[dict[str, list[Any]]]:
    """The four sequences, as they are: ids, which of them are trained, their numbers."""
    return [
        {"ids": each["input_ids"][0], "mask": each["loss_mask"][0], "logprobs": each["logprobs"][0]}
        for each in golden("areal")
    ]


def test_trl_scores_each_trained_token_by_the_one_before_it(inside: Any, rows: list[dict[str, list[Any]]]) -> None:
    said = inside("trl", PROGRAMS / "take_trl_async.py", golden("trl_async"), limit_s=LIMIT_S)
    trained = [
        (sample, at, row["ids"][at], row["logprobs"][at], 0.5 if sample < 2 else -0.5)
        for sample, row in enumerate(rows)
        for at, counted in enumerate(row["mask"])
        if counted
    ]
    names = ("sample", "position", "target", "logprob", "advantage")
    assert list(zip(*(said[name] for name in names), strict=True)) == trained
    # A token that several samples share is forwarded once; a branch costs one more.
    assert said["forwarded"] < sum(len(row["ids"]) for row in rows)


def test_verifiers_sees_the_same_branches(inside: Any, rows: list[dict[str, list[Any]]]) -> None:
    first, second = inside("trl", PROGRAMS / "take_verifiers.py", golden("verifiers"))
    branches = first["branches"] + second["branches"]
    assert [each["ids"] for each in branches] == [row["ids"] for row in rows]
    # The shared answer is sampled in both of its branches; whoever takes branches apart trains it once.
    shared = [[False] * 7 + [True] * 4 + [False] * 8 + [True] * 2]
    trained = [[counted == 1 for counted in row["mask"]] for row in rows]
    assert [each["mask"] for each in branches] == [trained[0], *shared, trained[2], trained[3]]
    assert [each["logprobs"] for each in branches] == [row["logprobs"] for row in rows]
    assert first["roles"] == [["user", "assistant", "tool", "assistant"]] * 2
    assert (first["reward"], second["reward"], first["ok"], first["exact"]) == (1.0, 0.0, True, True)


def _tensors(name: str) -> list[dict[str, Any]]:
    return [
        {key: [tensor["dtype"], tensor["data"]] for key, tensor in each["loss_fn_inputs"].items()}
        | {"length": tensor_length}
        for each in golden(name)
        for tensor_length in (len(each["loss_fn_inputs"]["target_tokens"]["data"]),)
    ]


def test_tinker_takes_the_datums(inside: Any) -> None:
    assert inside("trl", PROGRAMS / "take_tinker.py", {"samples": golden("tinker")})["ours"] == _tensors("tinker")


def test_an_image_counts_as_many_positions_as_it_has_embeddings(inside: Any) -> None:
    (datum, *_) = golden("tinker")
    ids = datum["model_input"]["chunks"][0]["tokens"]
    image = {"type": "image", "format": "png", "expected_tokens": 2}
    texts = [{"type": "encoded_text", "tokens": each} for each in (ids[:13], ids[15:])]
    datum["model_input"]["chunks"] = [texts[0], image, texts[1]]
    (said,) = inside("trl", PROGRAMS / "take_tinker.py", {"samples": [datum]})["ours"]
    assert said["length"] == len(said["target_tokens"][1]) == 21


def test_the_cookbook_makes_the_same_datums_of_the_same_turns(inside: Any) -> None:
    """Of sequences without a masked answer: its own masking is by turns."""
    ids = [10, 11, 2, 3, 1, 20, 30, 31, 40, 2, 3, 1, 50, 51, 2, 3, 1, 20, 60, 61, 2]
    first = [[1, *ids[:6]], ids[6:10], [-0.25, -1.5, -0.125, -0.0625]]
    second = [[1, *ids[:18]], ids[18:], [-0.75, -0.5, -0.03125]]
    other = [[1, 11, 2, 1, 20], [30, 31, 32, 2], [-0.125, -0.25, -0.5, -1.0]]
    samples = [golden("tinker")[at] for at in (0, 2)]
    said = inside(
        "cookbook",
        PROGRAMS / "take_tinker.py",
        {"samples": samples, "turns": [([first, second], 0.5), ([other], -0.5)]},
    )
    for ours, theirs in zip(said["ours"], said["theirs"], strict=True):
        dtype, mask = theirs.pop("mask")
        assert ours == theirs
        assert (dtype, mask) == ("float32", [float(value != 0.0) for value in ours["advantages"][1]])


def test_the_server_of_atropos_takes_the_group(inside: Any) -> None:
    (said,) = inside("trl", PROGRAMS / "take_atropos.py", golden("atropos"))
    (given,) = golden("atropos")
    assert {name: value for name, value in said.items() if value is not None} == given


def test_verls_agent_loop_makes_its_batch_of_the_outputs(inside: Any, rows: list[dict[str, list[Any]]]) -> None:
    said = inside("verl", PROGRAMS / "take_verl.py", golden("verl"), limit_s=LIMIT_S)
    batch, cuts = said["batch"], (7, 7, 5, 15)
    prompt, response = len(batch["prompts"][0]), len(batch["responses"][0])
    for at, (row, cut) in enumerate(zip(rows, cuts, strict=True)):
        answered = len(row["ids"]) - cut
        behind = [0] * (response - answered)
        assert batch["prompts"][at] == [0] * (prompt - cut) + row["ids"][:cut]
        assert batch["responses"][at] == row["ids"][cut:] + behind
        assert batch["response_mask"][at] == row["mask"][cut:] + behind
        assert batch["rollout_log_probs"][at] == row["logprobs"][cut:] + behind
        reward = [0.0] * response
        reward[answered - 1] = 1.0 if at < 2 else 0.0
        assert batch["rm_scores"][at] == reward
        assert said["as_dict"][at]["rollout_log_probs"] == row["logprobs"][cut:]
    assert said["versions"] == [[7, 7, 7, 7], [7, 7, 7, 8]]


# AReaL, NeMo and OpenRLHF are not installed; what their own code takes are dicts of tensors and of lists.
MADE = {
    "trl": {
        "trl": [1, "list"],
        "trl-async": [4, "RolloutSample"],
        "verifiers": [2, "Trace[TaskData, State, dict]"],
        "tinker": [4, "Datum"],
        "atropos": [1, "ScoredData"],
        "areal": [4, "dict"],
        "nemo-rl": [4, "dict"],
        "nemo-gym": [4, "dict"],
        "openrlhf": [4, "dict"],
    },
    "verl": {"verl": [2, "list"]},
}


def _block(page: str) -> str:
    text = (ROOT / "docs" / "train" / f"{page}.md").read_text(encoding="utf-8")
    block = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]
    return block.replace('prompts = ["g"]', 'prompts = ["g-17"]')


@pytest.mark.parametrize("environment", MADE)
def test_the_lines_of_a_page_do_what_it_says(inside: Any, environment: str) -> None:
    blocks = {page: _block(page) for page in MADE[environment]}
    said = {"rollouts": golden("rollouts"), "blocks": blocks}
    assert inside(environment, PROGRAMS / "run_page.py", said, limit_s=LIMIT_S) == MADE[environment]
