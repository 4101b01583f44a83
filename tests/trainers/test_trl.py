"""A real step of TRL on a live Turnstile before a real engine of the trainer's own weights, in float32."""

from __future__ import annotations

import asyncio
import json
import mmap
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import turnstile
from turnstile.engines import cache_home, tools_template
from turnstile.engines.smollm import model_file, say_nothing
from turnstile.templates.gguf import tokenizer_files

PROGRAMS = Path(__file__).parent / "programs"
LIMIT_S = 500.0
pytestmark = pytest.mark.timeout(LIMIT_S + 100)


@pytest.fixture(scope="module")
def weights(inside: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One state dict in two files: a checkpoint for the trainer, a gguf for the engine."""
    folder = tmp_path_factory.mktemp("weights")
    gguf = asyncio.run(model_file(cache_home(), say_nothing))
    inside("trl", PROGRAMS / "tiny_models.py", {"folder": str(folder), "gguf": str(gguf)}, limit_s=LIMIT_S)
    return folder


@pytest.fixture(scope="module")
def tokenizer(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    with (weights / "model.gguf").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        files = tokenizer_files(memoryview(view))
    (folder / "tokenizer.json").write_text(files.tokenizer_json, encoding="utf-8")
    (folder / "chat_template.jinja").write_text(tools_template(), encoding="utf-8")
    config = {"bos_token": files.special_tokens.get("bos_token"), "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def engine(weights: Path) -> Iterator[str]:
    """llama.cpp in float32 throughout."""
    program = [sys.executable, str(PROGRAMS / "float32_llama.py")]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps({"gguf": str(weights / "model.gguf")}).encode() + b"\n")
        child.stdin.flush()
        yield json.loads(child.stdout.readline())
        child.stdin.close()
        child.wait(timeout=10)


@pytest.fixture(scope="module")
def said(
    inside: Any, engine: str, weights: Path, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What TRL logged of a live step, of one that waited for the same groups, and of damaged copies."""
    store = tmp_path_factory.mktemp("store")
    with turnstile.serve(engine=engine, model="tiny", tokenizer=tokenizer, store=store) as client:
        told = {"url": client.url, "model": str(weights), "tokenizer": str(tokenizer)}
        return inside("trl", PROGRAMS / "trl_step.py", told, limit_s=LIMIT_S)


DIFFERENCE = "sampling/sampling_logp_difference/mean"


def test_the_trainers_own_numbers_are_the_recorded_ones(said: dict[str, Any]) -> None:
    assert said["step"][DIFFERENCE] < 1e-5
    assert said["step"]["sampling/importance_sampling_ratio/mean"] == pytest.approx(1.0, abs=1e-4)


def test_the_step_trains_what_was_sampled_and_nothing_that_a_tool_said(said: dict[str, Any]) -> None:
    rows = said["rows"]
    assert rows["groups"] == 2
    assert all(10 < trained <= 60 for trained in rows["trained"])
    assert all(read > 10 for read in rows["tools"])
    assert said["step"]["reward"] == pytest.approx(sum(rows["rewards"]) / 4, abs=1e-3)
    assert said["step"]["moved"] > 1e-4


def test_groups_that_others_ran_make_the_same_step(said: dict[str, Any]) -> None:
    assert said["waited"][DIFFERENCE] == pytest.approx(said["step"][DIFFERENCE], abs=1e-6)
    assert said["waited"]["reward"] == said["step"]["reward"]


@pytest.mark.parametrize(
    "damage",
    [
        "far prompt id",
        "last prompt id",
        "shifted by one",
        "an id of what the tool said",
        "temperature 0.7 in the trainer",
    ],
)
def test_a_damaged_copy_shows_in_what_trl_logs(said: dict[str, Any], damage: str) -> None:
    assert said["damaged"][damage] > 1e-3
