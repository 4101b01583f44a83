"""Each code of the reference is given for a copy of the example that was damaged on purpose."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from turnstile.trajectory.npy import SideArray, array_entry, to_npy
from turnstile.trajectory.validate import FileCheck, UnknownMeaning

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "validate-codes.md"
Place = tuple[str | int, ...]

PICTURE = {
    "sha256": sha256(b"a picture").hexdigest(),
    "mime": "image/png",
    "kind": "image",
    "offset": 1,
    "length": 2,
    "num_tokens": 2,
    "placeholder_id": 11,
}
KEPT_IDS = to_npy(SideArray("int32", (6,), b"".join(value.to_bytes(4, "little") for value in (30, 31, 40, 9, 70, 2))))
KEPT_OFFSETS = to_npy(SideArray("int32", (7,), b"".join(value.to_bytes(4, "little") for value in range(7))))


def entry(content: bytes) -> dict[str, Any]:
    found = array_entry(content, "sampled", 0, 6)
    names = ("uri", "sha256", "dtype", "shape", "axis", "start", "end")
    return {name: getattr(found, name) for name in names}


FIRST: Place = ("sequences", 0)
SEGMENT: Place = (*FIRST, "segments", 2)
DAMAGES: dict[str, list[tuple[Place, Any]]] = {
    "E102": [(("format_version",), "2.0")],
    "E103": [(("calls", 0, "head"), "zero")],
    "E105": [(("calls", 1, "parent"), 1)],
    "E106": [(("finished_at",), "2026-11-01T10:00:00.000000Z")],
    "E107": [(("trainable",), False)],
    "E201": [((*FIRST, "segments", 3, "start"), 12)],
    "E202": [((*FIRST, "segments", 6, "end"), 21)],
    "E203": [((*SEGMENT, "call"), None)],
    "E204": [((*FIRST, "segments", 4, "trainable"), True)],
    "E205": [(("sequences", 1, "segments", 2, "mask_reason"), None)],
    "E206": [((*FIRST, "prompt_length"), 8)],
    "E207": [((*FIRST, "token_ids", 1), 128)],
    "E208": [
        (
            (*FIRST, "segments", 3),
            {"start": 11, "end": 12, "kind": "sampled", "call": 1, "trainable": False, "mask_reason": "user:x"},
        )
    ],
    "E209": [((*SEGMENT, "policy_version_min"), 8)],
    "E301": [((*FIRST, "logprobs"), [-0.5] * 6)],
    "E302": [((*FIRST, "logprobs", 0), -9999.0)],
    "E303": [((*FIRST, "logprobs", 0), None)],
    "E304": [((*SEGMENT, "weight"), -1.0)],
    "E305": [(("calls", 0, "logprobs_mode"), "unknown")],
    "E401": [((*FIRST, "token_ids", 1), 12)],
    "E402": [((*FIRST, "token_ids", 8), 32)],
    "E403": [(("calls", 0, "usage", "prompt_tokens"), 8)],
    "E404": [(("calls", 0, "usage", "completion_tokens"), 5)],
    "E405": [(("calls", 2, "parent"), 1)],
    "E406": [(("calls", 0, "finish"), "length")],
    "E407": [((*FIRST, "leaf_call"), 0)],
    "E501": [(("sequences", 1, "segments", 2, "trainable"), True)],
    "E502": [(("calls", 1, "kind"), "auxiliary")],
    "E503": [(("calls", 1, "sequence"), 1)],
    "E504": [(("calls", 1, "sequence"), None)],
    "E505": [(("token_counts", "sampled"), 10)],
    "E506": [(("calls", 1, "complete"), False)],
    "E601": [((*FIRST, "media"), [PICTURE | {"offset": 6}])],
    "E602": [((*FIRST, "media"), [PICTURE | {"sha256": "0" * 64}])],
    "W602": [((*FIRST, "media"), [PICTURE])],
    "E603": [((*FIRST, "media"), [PICTURE | {"num_tokens": 3}])],
    "E701": [(("sequences", 1, "arrays"), {"topk_ids": entry(KEPT_IDS)})],
    "E702": [(("sequences", 1, "arrays"), {"kept_ids": entry(KEPT_IDS), "kept_offsets": entry(KEPT_OFFSETS)})],
    "W801": [(("reward",), None)],
    "W802": [],
    "W804": [(("samplings", 0, "top_p"), 0.9)],
    "W805": [((*SEGMENT, "policy_version_min"), 5)],
    "W806": [(("calls", 0, "shiny"), 1)],
}
OF_FILES = {"E101", "E104", "W305", "W803"}


def codes(path: Path, meaning: UnknownMeaning = UnknownMeaning.REFUSED) -> set[str]:
    return {violation.code for violation in FileCheck(path, meaning).violations()}


def test_every_code_of_the_reference_has_a_damaged_copy():
    listed = set(re.findall(r"^\| ([EW]\d{3}) \|", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE))
    assert {*DAMAGES, *OF_FILES} == listed


@pytest.mark.parametrize("code", DAMAGES)
def test_a_damaged_copy_is_found(tmp_path, example, code):
    for place, value in DAMAGES[code]:
        at: Any = example
        for step in place[:-1]:
            at = at[step]
        at[place[-1]] = value
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(example))
    if code in ("E601", "E602", "E603"):
        folder = tmp_path / "a.jsonl.media" / PICTURE["sha256"][:2]
        folder.mkdir(parents=True)
        (folder / PICTURE["sha256"]).write_bytes(b"a picture")
    arrays = tmp_path / "a.jsonl.arrays"
    arrays.mkdir()
    for content in (KEPT_IDS, KEPT_OFFSETS):
        (arrays / f"{sha256(content).hexdigest()}.npy").write_bytes(content)
    found = codes(path)
    assert code in found
    if code.startswith("W"):
        assert not any(each.startswith("E") for each in found)


def test_what_only_a_file_shows_is_found(tmp_path, example):
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(example)}\n{json.dumps(example)}\nnot json\n")
    assert {"E101", "E104"} <= codes(path)
    for call in example["calls"]:
        call["logprobs_mode"] = "raw"
    other = example | {"rollout_id": "ro-2"}
    path.write_text(f"{path.read_text().splitlines()[0]}\n{json.dumps(other)}\n")
    assert "W803" in codes(path)
    example["calls"][0]["logprobs_mode"] = "none"
    path.write_text(json.dumps(example))
    assert "E305" in codes(path)
    assert "E305" not in codes(path, UnknownMeaning.ALLOWED)
    assert "W305" in codes(path, UnknownMeaning.ALLOWED)
