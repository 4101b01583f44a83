"""`turnstile export --for TRAINER`."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from turnstile.cli.sources import Selection, open_source
from turnstile.cli.trainers import export_for, told
from turnstile.errors import CallerError
from turnstile.trajectory.converters import CONVERTERS
from turnstile.trajectory.converters.conversion import Report, convert
from turnstile.trajectory.converters.options import Advantage, Options
from turnstile.trajectory.files import read
from turnstile.trajectory.rules import Rules

Run = Callable[..., Any]


def test_a_store_and_its_file_give_the_same_samples(run: Run, store: Path, tmp_path: Path) -> None:
    neutral, from_store, from_file = (tmp_path / name for name in ("all.parquet", "a.jsonl", "b.jsonl"))
    assert run("export", store, "-o", neutral).exit_code == 0
    options = ["--for", "trl", "--drop", "rollout_running"]
    for source, out in ((store, from_store), (neutral, from_file)):
        assert run("export", source, "-o", out, *options).exit_code == 0
    assert from_store.read_bytes() == from_file.read_bytes()
    samples = [json.loads(line)["sample"] for line in from_store.read_bytes().splitlines()]
    assert samples == [each.sample for each in convert(read(neutral), "trl", drop=["rollout_running"])]


def test_it_says_what_was_written_and_what_was_left_out(run: Run, store: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    answer = run("export", store, "-o", out, "--for", "miles", "--drop", "reward_missing", "--allow-raw")
    assert (answer.exit_code, answer.stdout) == (0, "")
    first, second, *notes = answer.stderr.splitlines()
    assert first == f"1 sample for miles written to {out}: 1 rollout, 1 sequence, 10 trained tokens"
    assert second == "left out: 1 reward_missing"
    assert all(note.startswith("note: ") for note in notes)


def test_one_group_is_written_for_a_trainer_by_its_name_with_a_dash(run: Run, store: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    assert run("export", store, "-o", out, "--for", "prime-rl", "--group", "g", "--env-name", "calc").exit_code == 0
    (line,) = out.read_text().splitlines()
    assert json.loads(line)["sample"]["env_name"] == "calc"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--for", "vrel"], "trainer_unknown"),
        (["--for", "areal"], "rollout_running"),
        (["--for", "areal", "--drop", "areal"], "option_invalid"),
        (["--for", "areal", "--group", "g", "--max-length", "3"], "row_too_long"),
        (["--for", "trl", "--group", "g", "--group-size", "2"], "group_size"),
        (["--for", "areal", "--group", "g", "--model", "nobody"], "model_not_in_file"),
        (["--for", "trl_async", "--group", "g"], "policy_version_unknown"),
        (["--for", "tinker", "--group", "g", "--advantage", "rloo"], "group_too_small"),
        (["--model", "m"], "option_invalid"),
        (["--prompt-length", "3"], "option_invalid"),
        (["--one-sequence", "last"], "option_invalid"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_written(
    run: Run, store: Path, tmp_path: Path, options: list[str], code: str
) -> None:
    refused = run("export", store, "-o", tmp_path / "x.jsonl", *options).exception
    assert isinstance(refused, CallerError)
    assert refused.code == code
    assert list(tmp_path.iterdir()) == []


def test_images_are_put_beside_the_samples_only_where_the_trainer_takes_them(tmp_path: Path) -> None:
    picture = b"\x89PNG"
    path, name = _file_with_picture(tmp_path, picture)
    with open_source(path, Selection(), Rules()) as source:
        report, left = export_for(source, tmp_path / "t.jsonl", "tinker", Options(advantage=Advantage.REWARD))
    assert (report.samples, left) == (1, (("r", 1),))
    assert (tmp_path / "t.jsonl.media" / name[:2] / name).read_bytes() == picture
    with open_source(path, Selection(), Rules()) as source, pytest.raises(CallerError):
        export_for(source, tmp_path / "a.jsonl", "areal", Options())
    assert not (tmp_path / "a.jsonl.media").exists()


def _file_with_picture(tmp_path: Path, picture: bytes) -> tuple[Path, str]:
    name = sha256(picture).hexdigest()
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(_rollout_with_picture(name)) + "\n")
    beside = tmp_path / "r.jsonl.media" / name[:2]
    beside.mkdir(parents=True)
    (beside / name).write_bytes(picture)
    return path, name


def _rollout_with_picture(name: str) -> dict[str, Any]:
    now = "2026-12-01T10:00:00.000000Z"
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    call = {"call_id": "c", "history": "root", "kind": "agent", "dialect": "openai.chat", "choice_index": 0, "head": 0}
    call |= {"sampling": 0, "sequence": 0, "started_at": now, "finish": "stop", "usage": usage, "prompt_sha256": "0"}
    call |= {"completion_sha256": "0", "logprobs_mode": "processed", "complete": True, "incomplete_reasons": []}
    media = {"sha256": name, "mime": "image/png", "kind": "image", "offset": 1, "length": 1, "num_tokens": 1}
    segments = [
        {"start": 0, "end": 3, "kind": "prompt"},
        {"start": 3, "end": 4, "kind": "sampled", "call": 0, "trainable": True},
    ]
    sequence = {"sequence_id": "r/0", "head": 0, "leaf_call": 0, "token_ids": [1, 9, 1, 2], "prompt_length": 3}
    sequence |= {"segments": segments, "logprobs": [-0.5], "complete": True, "incomplete_reasons": [], "messages": []}
    sequence |= {"media": [media | {"placeholder_id": 9}], "arrays": {}}
    rollout = {"format": "turnstile.rollout", "format_version": "1.0", "rollout_id": "r", "attempt": 1, "reward": 1.0}
    rollout |= {"created_at": now, "status": "completed", "trainable": True, "mask_reasons": [], "rewards": {}}
    rollout |= {"metrics": {}, "messages": [], "tools": [], "extra": {}, "calls": [call], "sequences": [sequence]}
    rollout["heads"] = [{"model": "m", "engine": "vllm", "tokenizer_sha256": "0", "template_kwargs": {}}]
    rollout["samplings"] = [{"temperature": 1.0}]
    rollout["token_counts"] = {"sampled": 1, "trainable": 1, "masked": {}, "discarded": {}}
    return rollout


def test_a_report_is_told_in_lines() -> None:
    report = Report(
        samples=2, rollouts=1, sequences=2, trained_tokens=1, left_out={"a": 1, "b": 2}, notes=("one", "two")
    )
    assert told(report, Path("f.jsonl"), "trl") == (
        "2 samples for trl written to f.jsonl: 1 rollout, 2 sequences, 1 trained token\n"
        "left out: 1 a, 2 b\nnote: one\nnote: two"
    )


def test_the_help_names_every_trainer(run: Run) -> None:
    shown = run("export", "--help").stdout.replace("\n", " ")
    assert [each.name for each in CONVERTERS if each.name not in shown] == []
