from __future__ import annotations

import hashlib
import json
import struct

from turnstile.trajectory.validate import validate_file


def test_media_must_stand_in_context_and_hold_their_placeholder(example, lines_of, codes_of):
    entry = {
        "sha256": "0" * 64,
        "mime": "image/png",
        "kind": "image",
        "offset": 1,
        "length": 2,
        "num_tokens": 2,
        "placeholder_id": 11,
        "width": 1,
        "height": 1,
    }
    example["sequences"][0]["media"] = [entry]
    assert lines_of(example) == []
    for change, code in (
        ({"offset": 6}, "E601"),
        ({"offset": 21, "length": 5}, "E601"),
        ({"placeholder_id": 99}, "E603"),
        ({"num_tokens": 3}, "E603"),
    ):
        example["sequences"][0]["media"] = [entry | change]
        assert code in codes_of(example)
    example["sequences"][0]["media"] = [entry, entry]
    assert codes_of(example) == {"E601"}


def test_media_bytes_are_looked_for_beside_the_file(tmp_path, example):
    data = b"a picture"
    name = hashlib.sha256(data).hexdigest()
    example["sequences"][0]["media"] = [
        {
            "sha256": name,
            "mime": "image/png",
            "kind": "image",
            "offset": 1,
            "length": 2,
            "num_tokens": 2,
            "placeholder_id": 11,
        }
    ]
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(example))

    def side_codes():
        return [violation.code for violation in validate_file(path) if violation.code[1] == "6"]

    assert side_codes() == ["W602"]
    folder = tmp_path / "a.jsonl.media" / name[:2]
    folder.mkdir(parents=True)
    assert side_codes() == ["E602"]
    (folder / name).write_bytes(data)
    assert side_codes() == []
    (folder / name).write_bytes(b"another")
    assert side_codes() == ["E602"]


def npy(descr: str, shape: tuple[int, ...], data: bytes) -> bytes:
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def store(path, sequence, name, descr, shape, data, rows):
    content = npy(descr, shape, data)
    digest = hashlib.sha256(content).hexdigest()
    folder = path.with_name(path.name + ".arrays")
    folder.mkdir(exist_ok=True)
    (folder / f"{digest}.npy").write_bytes(content)
    sequence["arrays"][name] = {
        "uri": f"{digest}.npy",
        "sha256": digest,
        "dtype": "int32",
        "shape": list(shape),
        "axis": "sampled",
        "start": 0,
        "end": rows,
    }


def test_side_arrays_are_checked_against_their_files(tmp_path, example):
    path = tmp_path / "a.jsonl"
    sequence = example["sequences"][1]
    sampled = [30, 31, 40, 2, 70, 2]

    def side_lines():
        path.write_text(json.dumps(example))
        return [str(violation) for violation in validate_file(path) if violation.code[1] == "7"]

    store(path, sequence, "kept_ids", "<i4", (6,), ints(*sampled), 6)
    store(path, sequence, "kept_offsets", "<i4", (7,), ints(*range(7)), 6)
    assert side_lines() == []
    store(path, sequence, "kept_ids", "<i4", (6,), ints(30, 31, 40, 9, 70, 2), 6)
    assert side_lines() == ["E702 ro-0001 1 3 sampled token outside its kept set"]
    store(path, sequence, "kept_offsets", "<i4", (7,), ints(0, 1, 2, 3, 4, 5, 9), 6)
    assert side_lines() == ["E702 ro-0001 1 - kept_offsets do not divide kept_ids"]
    store(path, sequence, "topk_ids", "<i8", (6, 2), bytes(96), 6)
    assert "E701 ro-0001 1 - array topk_ids: expected int32 [6, 2], got int64 [6, 2]" in side_lines()
    store(path, sequence, "topk_ids", "<i4", (5, 2), bytes(40), 6)
    assert "E701 ro-0001 1 - array topk_ids: expected 6 rows, got shape [5, 2]" in side_lines()
    sequence["arrays"]["topk_ids"]["sha256"] = "../../secret"
    assert "E701 ro-0001 1 - array topk_ids: its file is missing" in side_lines()
