"""The engine of the examples: its numbers are a plain forward's, whatever runs beside, before or between."""

from __future__ import annotations

import hashlib
import json
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
# Four processes import torch first, which takes minutes where others compute too.

NEAR = 2e-5
"""Float32, in another order of additions."""
PATIENCE_S = 60.0


def worst(plain: Any, answer: dict[str, Any], prompt: list[int], **said: Any) -> float:
    """How far an answer's numbers are from a plain forward's at most."""
    ids = answer["output_ids"]
    rows = plain.ask(ids=[*prompt, *ids], start=len(prompt), **said)
    return max(
        abs(rows[at][token] - number) for at, (token, number) in enumerate(zip(ids, answer["logprobs"], strict=True))
    )


def test_answers_side_by_side_have_the_numbers_of_a_plain_forward(served_text: Any, plain_text: Any) -> None:
    prompts = [[3 + (at * step) % 90 for at in range(5 + 9 * step)] for step in range(1, 9)]

    def asked(at: int) -> dict[str, Any]:
        return served_text.post("/generate", input_ids=prompts[at], max_tokens=3 + 4 * at, seed=at, stop_ids=[])

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(asked, range(8)))
    assert [len(each["output_ids"]) for each in answers] == [3 + 4 * at for at in range(8)]
    assert max(worst(plain_text, *each) for each in zip(answers, prompts, strict=True)) < NEAR


def test_a_prompt_that_goes_on_from_an_answer_has_the_same_numbers(served_text: Any, plain_text: Any) -> None:
    prompt = list(range(3, 60))
    first = served_text.post("/generate", input_ids=prompt, max_tokens=40, seed=1, stop_ids=[])
    longer = [*prompt, *first["output_ids"], 9, 8, 7]
    second = served_text.post("/generate", input_ids=longer, max_tokens=20, seed=2, stop_ids=[])
    assert worst(plain_text, second, longer) < NEAR


def test_the_prompt_that_ran_is_named_by_its_hash(served_text: Any) -> None:
    answer = served_text.post("/generate", input_ids=[3, 4, 5], max_tokens=1)
    assert answer["prompt_sha256"] == hashlib.sha256(struct.pack("<3i", 3, 4, 5)).hexdigest()
    assert (answer["prompt_tokens"], answer["logprobs_mode"], answer["logprobs_temperature"]) == (3, "temperature", 1.0)


def test_a_seed_names_an_answer_with_and_without_neighbours(served_text: Any) -> None:
    def asked(seed: int) -> list[int]:
        ids = served_text.post("/generate", input_ids=[3, 4, 5, 6], max_tokens=24, seed=seed, stop_ids=[])["output_ids"]
        return list(ids)

    alone = [asked(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(asked, range(4))) == alone
    assert len({tuple(each) for each in alone}) == 4


def test_pictures_are_expanded_and_seen(served_vision: Any, plain_vision: Any, token_servers: Any) -> None:
    info = served_vision.get("/info")
    pad = info["images"]["placeholder_id"]
    images = [token_servers.picture(11), token_servers.picture(200, 84, 56)]
    sent = [token_servers.base64_of(each) for each in images]
    prompt = [10, 11, pad, 12, 13, pad, 14]
    answer = served_vision.post("/generate", input_ids=prompt, images=sent, max_tokens=12, seed=3, stop_ids=[])
    assert answer["image_ranges"] == [[2, 4], [8, 6]]
    assert answer["prompt_ids"] == [10, 11, *[pad] * 4, 12, 13, *[pad] * 6, 14]
    assert worst(plain_vision, answer, answer["prompt_ids"], images=sent, banned=info["banned_ids"]) < NEAR


def test_equal_ids_with_another_picture_are_another_prompt(
    served_vision: Any, plain_vision: Any, token_servers: Any
) -> None:
    info = served_vision.get("/info")
    pad = info["images"]["placeholder_id"]
    prompt = [*range(10, 40), pad, *range(40, 60)]
    for shade in (20, 90, 20):
        sent = [token_servers.base64_of(token_servers.picture(shade))]
        answer = served_vision.post("/generate", input_ids=prompt, images=sent, max_tokens=8, seed=3, stop_ids=[])
        assert worst(plain_vision, answer, answer["prompt_ids"], images=sent, banned=info["banned_ids"]) < NEAR


def test_a_new_picture_behind_a_known_one_has_the_same_numbers(
    served_vision: Any, plain_vision: Any, token_servers: Any
) -> None:
    info = served_vision.get("/info")
    pad = info["images"]["placeholder_id"]
    sent = [token_servers.base64_of(token_servers.picture(33))]
    first = [*range(10, 40), pad, *range(40, 50)]
    answer = served_vision.post("/generate", input_ids=first, images=sent, max_tokens=9, seed=3, stop_ids=[])
    sent.append(token_servers.base64_of(token_servers.picture(66, 84, 84)))
    second = [*first, *answer["output_ids"], 11, pad, 12]
    answer = served_vision.post("/generate", input_ids=second, images=sent, max_tokens=9, seed=4, stop_ids=[])
    assert worst(plain_vision, answer, answer["prompt_ids"], images=sent, banned=info["banned_ids"]) < NEAR


def test_what_only_a_prompt_may_hold_is_never_sampled(served_vision: Any) -> None:
    info = served_vision.get("/info")
    bias = [[each, 50.0] for each in info["banned_ids"]]
    answer = served_vision.post("/generate", input_ids=[10], max_tokens=30, logit_bias=bias, stop_ids=[])
    assert not set(answer["output_ids"]) & set(info["banned_ids"])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"input_ids": []}, "`input_ids` is empty"),
        ({"input_ids": [3, 100000]}, "`input_ids` has 100000"),
        ({"input_ids": [3], "temperture": 1}, "`temperture` is no field"),
        ({"input_ids": [3], "top_p": 0}, "`top_p` is 0"),
        ({"input_ids": [3], "images": ["aGk="]}, "is shown none"),
        ({"input_ids": [3] * 300}, "the context holds 256"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(served_text: Any, body: dict[str, Any], said: str) -> None:
    refused = served_text.post("/generate", **body)
    assert refused["status"] == 400
    assert said in refused["error"]["message"]


@pytest.mark.parametrize("images", [[], ["AAAA"], ["not base64"], ["AAAA", "AAAA"]])
def test_pictures_that_do_not_fit_their_prompt_are_refused(served_vision: Any, images: list[str]) -> None:
    pad = served_vision.get("/info")["images"]["placeholder_id"]
    refused = served_vision.post("/generate", input_ids=[10, pad], images=images, max_tokens=1)
    assert (refused["status"], "image" in refused["error"]["message"]) == (400, True)


@pytest.fixture
def updated(served_text: Any, plain_text: Any) -> Iterator[Any]:
    """An engine whose weights a test may change."""
    assert served_text.post("/update_weights", path=str(plain_text.folder), version=7)["weight_version"] == "7"
    yield served_text
    served_text.post("/update_weights", path=str(plain_text.folder), version=0)


def test_new_weights_are_in_force_at_a_token_and_all_numbers_are_theirs(
    updated: Any, plain_text: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("pushed") / "a"
    plain_text.ask(save=str(folder), noise=0.2)
    prompt = list(range(3, 30))
    sampled = updated.get("/info")["sampled"]
    answers: list[dict[str, Any]] = []

    def ask() -> None:
        answers.append(updated.post("/generate", input_ids=prompt, max_tokens=220, seed=1, stop_ids=[]))

    thread = threading.Thread(target=ask)
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while updated.get("/info")["sampled"] == sampled:
        assert time.monotonic() < deadline
    assert updated.post("/update_weights", path=str(folder), version=8)["weight_version"] == "8"
    thread.join()
    (answer,) = answers
    spans = answer["weight_versions"]
    assert [each["version"] for each in spans] in (["7", "8"], ["7"])
    for span in spans:
        weights = str(folder) if span["version"] == "8" else None
        rows = plain_text.ask(ids=[*prompt, *answer["output_ids"]], start=len(prompt), weights=weights)
        for at in range(span["start"], span["end"]):
            assert abs(rows[at][answer["output_ids"][at]] - answer["logprobs"][at]) < NEAR
    again = updated.post("/generate", input_ids=prompt, max_tokens=20, seed=1, stop_ids=[])
    assert worst(plain_text, again, prompt, weights=str(folder)) < NEAR
    assert [each["version"] for each in again["weight_versions"]] == ["8"]


def test_weights_of_a_model_that_sees_are_read_under_the_names_of_their_file(
    served_vision: Any, plain_vision: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("pushed") / "b"
    plain_vision.ask(save=str(folder), noise=0.2, raw=True)
    (raw := folder.parent / "raw.safetensors").write_bytes((folder / "raw.safetensors").read_bytes())
    (folder / "raw.safetensors").unlink()
    try:
        banned = served_vision.get("/info")["banned_ids"]
        first = served_vision.get("/info")["model_sha256"]
        told = [
            served_vision.post("/update_weights", path=str(each), version=at)
            for at, each in enumerate((folder, raw), 1)
        ]
        assert [each["weight_version"] for each in told] == ["1", "2"]
        assert told[0]["model_sha256"] == told[1]["model_sha256"] != first
        answer = served_vision.post("/generate", input_ids=[10, 11, 12], max_tokens=20, seed=1, stop_ids=[])
        assert worst(plain_vision, answer, [10, 11, 12], weights=str(folder), banned=banned) < NEAR
    finally:
        served_vision.post("/update_weights", path=str(plain_vision.folder), version=0)


def renamed(folder: Any, change: Any) -> None:
    """Change the header of a checkpoint's file, whose bytes stay."""
    file = folder / "model.safetensors"
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    change(header)
    written = json.dumps(header).encode()
    file.write_bytes(len(written).to_bytes(8, "little") + written + data[8 + size :])


def _misspelled(header: dict[str, Any]) -> None:
    header["model.norm.wieght"] = header.pop("model.norm.weight")


def _reshaped(header: dict[str, Any]) -> None:
    header["model.embed_tokens.weight"]["shape"].reverse()


@pytest.mark.parametrize(
    ("change", "said"), [(_misspelled, ("missing", "model.norm.weight")), (_reshaped, ("shape", "embed_tokens"))]
)
def test_weights_that_do_not_fit_are_refused_and_nothing_changes(
    served_text: Any, plain_text: Any, tmp_path_factory: pytest.TempPathFactory, change: Any, said: tuple[str, ...]
) -> None:
    folder = tmp_path_factory.mktemp("pushed") / "c"
    plain_text.ask(save=str(folder), noise=0.2)
    renamed(folder, change)
    before = served_text.get("/info")
    refused = served_text.post("/update_weights", path=str(folder), version=99)
    assert (refused["status"], refused["error"]["code"]) == (400, "weights_refused")
    assert all(each in refused["error"]["message"] for each in said)
    after = served_text.get("/info")
    assert (after["model_sha256"], after["weight_version"]) == (before["model_sha256"], before["weight_version"])


def test_another_models_configuration_is_refused(
    served_text: Any, plain_text: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("pushed") / "d"
    plain_text.ask(save=str(folder), noise=0.0)
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] *= 2
    (folder / "config.json").write_text(json.dumps(config))
    refused = served_text.post("/update_weights", path=str(folder), version=99)
    assert "rope_parameters.rope_theta" in refused["error"]["message"]


def test_it_says_what_a_trainer_has_to_agree_with(served_vision: Any, plain_vision: Any) -> None:
    info = served_vision.get("/info")
    tokenizer = (plain_vision.folder / "tokenizer.json").read_bytes()
    assert info["tokenizer_sha256"] == hashlib.sha256(tokenizer).hexdigest()
    config = json.loads((plain_vision.folder / "config.json").read_text())
    assert info["images"]["placeholder_id"] == config["image_token_id"]
    assert config["image_token_id"] in info["banned_ids"]
    assert (info["context_length"], info["stop_ids"], info["logprobs_mode"]) == (256, [2], "temperature")
