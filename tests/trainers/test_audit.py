"""The audit with real models of transformers: each fault that people meet, planted and named."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"
LIMIT_S = 400.0
pytestmark = pytest.mark.timeout(LIMIT_S + 60)


@pytest.fixture(scope="module")
def tiny(inside: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    inside("trl", PROGRAMS / "tiny_models.py", {"folder": str(folder)}, limit_s=LIMIT_S)
    return folder


@pytest.fixture(scope="module")
def said(inside: Any, tiny: Path) -> dict[str, Any]:
    told = {"model": str(tiny), "file": str(tiny / "spoilt.jsonl")}
    return inside("trl", PROGRAMS / "planted_faults.py", told, limit_s=LIMIT_S)


@pytest.fixture
def found(said: dict[str, Any]) -> dict[str, Any]:
    return said["cases"]


def _named(found: dict[str, Any], case: str) -> tuple[Any, ...]:
    """Verdict, kind of fault, region, id that belongs there, and the verdict on what is left."""
    finding = found[case]["finding"] or {}
    names = ("kind", "start", "end", "token_id", "temperature")
    return found[case]["verdict"], *(finding.get(name) for name in names)


@pytest.mark.parametrize(
    ("case", "kind", "start", "end", "temperature"),
    [
        ("shifted early", "numbers_too_early", None, None, None),
        ("shifted late", "numbers_too_late", None, None, None),
        ("own position", "logits_of_own_position", None, None, None),
        ("T 0.7, as T 1", "temperature", None, None, 0.7),
        ("T 1, as T 0.7", "temperature", None, None, 1.0),
        ("near prompt id", "wrong_prompt_id", 15, 16, None),
        ("far prompt id", "wrong_prompt_id", 2, 3, None),
        ("observation id", "wrong_prompt_id", 68, 69, None),
        ("observation id, hash of the file", "wrong_prompt_id", 56, 70, None),
        ("prompt id missing", "wrong_prompt_id", 0, 15, None),
        ("prompt id doubled", "wrong_prompt_id", 0, 17, None),
        ("sampled id", "wrong_sampled_id", 36, 37, None),
        ("sampled id, first of the second answer", "wrong_sampled_id", 70, 71, None),
        ("one number", "wrong_number", 87, 88, None),
        ("whole distribution, as top-p", "filter", None, None, None),
        ("bfloat16, shifted late", "numbers_too_late", None, None, None),
        ("bfloat16, T 0.7, as T 1", "temperature", None, None, 0.7),
        ("bfloat16, far prompt id, seen by its hash", "wrong_prompt_id", 2, 3, None),
        ("bfloat16, sampled id", "wrong_sampled_id", 36, 37, None),
        ("bfloat16, one number", "wrong_number", 87, 88, None),
    ],
)
def test_a_planted_fault_is_named_and_placed(
    found: dict[str, Any], case: str, kind: str, start: int | None, end: int | None, temperature: float | None
) -> None:
    verdict, *named = _named(found, case)
    assert (verdict, named[0], named[1], named[2], named[4]) == ("fault", kind, start, end, temperature)


@pytest.mark.parametrize("case", ["near prompt id", "far prompt id", "observation id", "sampled id"])
def test_the_right_id_in_its_place_makes_a_sequence_exact_again(found: dict[str, Any], case: str) -> None:
    finding = found[case]["finding"]
    assert finding["token_id"] is not None
    assert finding["figures"]["max_abs"] < 1e-3


def test_float32_on_both_sides_is_exact(found: dict[str, Any]) -> None:
    assert _named(found, "exact")[0] == "exact"
    assert found["exact"]["figures"]["max_abs"] < 1e-4


def test_logits_that_are_capped_behind_the_head_are_exact_too(found: dict[str, Any]) -> None:
    assert (found["capped logits"]["verdict"], found["capped logits"]["figures"]["tokens"]) == ("exact", 80)


def test_coarser_weights_are_noise(found: dict[str, Any]) -> None:
    assert _named(found, "bfloat16, as it is")[0] == "engine noise"


@pytest.mark.parametrize("case", ["other weights", "near prompt id, hash of the file"])
def test_what_fits_nowhere_is_not_explained_away(found: dict[str, Any], case: str) -> None:
    assert _named(found, case)[:2] == ("fault", "unexplained")


def test_the_command_tells_each_sequence_and_ends_with_7_if_one_is_at_fault(said: dict[str, Any]) -> None:
    code, stdout, stderr = said["command"]
    lines = [line for line in stdout.splitlines() if not line.startswith("    ")]
    assert (code, stderr, [line.split(",")[0] for line in lines]) == (
        7,
        "",
        ["r/0: exact", "r/0: engine noise", "r/0: fault", "3 sequences: fault"],
    )
    assert "    numbers_too_early: The log-probabilities are shifted" in stdout


def test_the_command_on_the_embedded_engines_own_rollouts_says_engine_noise(
    trainer_environment: Any, embedded_rollouts: Path
) -> None:
    python, variables = trainer_environment("trl")
    done = subprocess.run(
        [str(python), "-m", "turnstile.cli", "audit", str(embedded_rollouts), "--model", "embedded", "--json"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=variables,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    *rows, whole = [json.loads(line) for line in done.stdout.splitlines()]
    assert (whole["row"], whole["verdict"]) == ("total", "engine noise")
    assert {each["verdict"] for each in rows} == {"engine noise"}


@pytest.fixture(scope="module")
def pictured(inside: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("pictured")
    return inside("trl", PROGRAMS / "audit_images.py", {"folder": str(folder)}, limit_s=LIMIT_S)


def test_images_are_seen_by_the_model_as_the_engine_saw_them(pictured: dict[str, Any]) -> None:
    assert (pictured["right"]["verdict"], pictured["right"]["figures"]["tokens"]) == ("exact", 24)


def test_another_image_is_a_fault(pictured: dict[str, Any]) -> None:
    found = pictured["images exchanged"]
    assert (found["verdict"], found["finding"]["kind"], found["figures"]["beyond"]) == ("fault", "unexplained", 1.0)
    assert "an image or an id" in found["finding"]["said"]


def test_an_image_that_makes_another_number_of_tokens_is_refused(pictured: dict[str, Any]) -> None:
    assert pictured["another number of tokens"] == "audit_model_mismatch"


def test_an_image_whose_bytes_are_not_beside_the_file_is_refused(pictured: dict[str, Any]) -> None:
    assert pictured["bytes missing"] == "side_bytes_lost"
