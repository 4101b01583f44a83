"""A file of each released version keeps its meaning, and one of a newer version passes through unharmed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from turnstile.errors import CallerError
from turnstile.trajectory.files import FileForm, read, write
from turnstile.trajectory.side_files import SideFiles
from turnstile.trajectory.validate import validate_file

RELEASED = Path(__file__).parent / "released"
MINORS = sorted(path.name.removesuffix(".jsonl") for path in RELEASED.glob("*.jsonl"))
FORMS = [form.value for form in FileForm]


@pytest.mark.parametrize("ending", FORMS)
@pytest.mark.parametrize("minor", MINORS)
def test_a_file_of_each_released_version_is_read_in_each_form_and_keeps_the_rules(minor, ending):
    path = RELEASED / f"{minor}{ending}"
    assert list(read(path)) == list(read(RELEASED / f"{minor}.jsonl"))
    assert [str(each) for each in validate_file(path) if each.code.startswith("E")] == []


@pytest.mark.parametrize("minor", MINORS)
def test_a_released_line_is_written_again_as_it_was(tmp_path, minor):
    path = RELEASED / f"{minor}.jsonl"
    for ending in FORMS:
        write(tmp_path / f"a{ending}", read(path), SideFiles(path))
        write(tmp_path / "b.jsonl", read(tmp_path / f"a{ending}"))
        assert (tmp_path / "b.jsonl").read_bytes() == path.read_bytes()
        assert [str(each) for each in validate_file(tmp_path / f"a{ending}") if each.code.startswith("E")] == []


@pytest.mark.parametrize("ending", FORMS)
def test_version_1_0_means_what_it_meant(ending):
    example, forest, running = read(RELEASED / f"1.0{ending}")
    first, second = example.sequences
    assert first.loss_mask_T().tolist() == [0] * 7 + [1] * 4 + [0] * 8 + [1] * 3
    assert first.weights_T().tolist() == [0.0] * 7 + [1.0, 1.0, 0.5, 1.0] + [0.0] * 8 + [0.25, 1.0, 1.0]
    assert second.logprobs_T(9.0).tolist()[7:11] == [-0.25, -1.5, -0.125, -0.0625]
    assert second.versions_T().tolist() == [-1] * 7 + [7] * 4 + [-1] * 8 + [7] * 2
    assert (example.reward, first.reward, second.reward) == (1.0, None, 0.25)
    assert [(entry.offset, entry.length, entry.placeholder_id) for entry in first.media] == [(1, 2, 11)]
    assert first.arrays["routed_experts"].shape == (21, 1, 2)
    assert (forest.status, forest.reward, forest.stop_reason) == ("truncated", None, "time")
    assert forest.metrics == {"seconds": 7.5}
    assert [call.kind_reason for call in forest.calls if call.kind == "discarded"] == [
        "unselected_choice",
        "engine_broken",
    ]
    counts = forest.token_counts
    assert counts.sampled == counts.trainable + sum(counts.masked.values()) + sum(counts.discarded.values())
    assert (counts.masked["logprob_missing"], counts.discarded) == (1, {"engine_broken": 2, "unselected_choice": 2})
    assert sum(sum(sequence.weights_T()) for sequence in forest.sequences) == pytest.approx(counts.trainable)
    replayed = [part for sequence in forest.sequences for part in sequence.segments if part.kind == "replayed"]
    assert [(part.call, part.end - part.start, part.trainable) for part in replayed] == [(0, 2, False)]
    assert (running.attempt, running.status, running.sequences) == (2, "running", ())


@pytest.fixture
def newer(example):
    """The example as version 1.9 might write it: new fields at every depth, new words, a new kind of segment."""
    example |= {"format_version": "1.9", "shiny": {"a": [1, None]}}
    example["heads"][0]["quantization"] = "fp8"
    example["samplings"][0]["top_n_sigma"] = 1.5
    example["calls"][1] |= {"history": "teleported", "speculative": {"accepted": 3}}
    example["calls"][2]["kind"] = "tutor"
    example["calls"][1]["usage"]["thinking_tokens"] = 2
    example["token_counts"]["skipped"] = 0
    first = example["sequences"][0]
    first["segments"][4:5] = [
        {"start": 12, "end": 14, "kind": "memory", "trainable": True, "colour": "red"},
        {"start": 14, "end": 17, "kind": "observation"},
    ]
    first["media"] = [
        {
            "sha256": "0" * 64,
            "mime": "model/gltf",
            "kind": "scene",
            "offset": 12,
            "length": 2,
            "num_tokens": 2,
            "placeholder_id": 1,
            "width": None,
            "height": None,
            "depth": 4,
        }
    ]
    return example


@pytest.mark.parametrize("ending", FORMS)
def test_a_newer_minor_version_passes_through_every_form_unharmed(tmp_path, newer, ending):
    (tmp_path / "a.jsonl").write_text(json.dumps(newer))
    write(tmp_path / f"b{ending}", read(tmp_path / "a.jsonl"))
    write(tmp_path / "c.jsonl", read(tmp_path / f"b{ending}"))
    assert json.loads((tmp_path / "c.jsonl").read_text()) == newer


def test_what_a_newer_minor_version_says_is_a_warning_and_its_segments_are_not_trained(tmp_path, newer):
    (tmp_path / "a.jsonl").write_text(json.dumps(newer))
    (rollout,) = read(tmp_path / "a.jsonl")
    assert sum(rollout.sequences[0].loss_mask_T()[12:14]) == 0
    said = [str(each) for each in validate_file(tmp_path / "a.jsonl")]
    assert [line for line in said if line.startswith("E")] == []
    (fields,) = [line for line in said if "kept without being understood" in line]
    for name in (
        "shiny",
        "quantization",
        "top_n_sigma",
        "speculative",
        "thinking_tokens",
        "skipped",
        "colour",
        "depth",
    ):
        assert name in fields
    for word in ("teleported", "tutor", "memory", "scene"):
        assert any(line.startswith("W806") and f"got '{word}'" in line for line in said)


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.zst"])
def test_another_major_version_is_refused_in_one_sentence_that_names_it(tmp_path, example, ending):
    path = tmp_path / f"a{ending}"
    with pa.output_stream(path, compression="zstd" if ending == ".jsonl.zst" else None) as stream:
        stream.write(json.dumps(example | {"format_version": "2.0", "calls": "another shape"}).encode())
    with pytest.raises(CallerError) as caught:
        list(read(path))
    assert "version 2.0 not readable, needs a turnstile that reads format 2" in str(caught.value)
    assert "Install a newer turnstile-rl" in str(caught.value)
