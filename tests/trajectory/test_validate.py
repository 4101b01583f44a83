from __future__ import annotations

import copy
import hashlib
import json
import struct

import pytest

from turnstile.errors import CallerError
from turnstile.trajectory.files import FileForm, write
from turnstile.trajectory.format import decode_line
from turnstile.trajectory.validate import Violation, validate, validate_file


def found(fields) -> list[str]:
    return [str(violation) for violation in validate(decode_line(json.dumps(fields).encode()))]


def codes(fields) -> list[str]:
    return sorted({line.split()[0] for line in found(fields)})


def put(fields, *path, value):
    at = fields
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return fields


def test_the_example_keeps_every_rule(example):
    assert found(example) == []


def test_a_line_of_output_is_code_rollout_sequence_index_and_message():
    assert str(Violation("E201", "ro-1", 0, 7, "gap at token 7")) == "E201 ro-1 0 7 gap at token 7"
    assert str(Violation("E107", "ro-1", None, None, "no reason")) == "E107 ro-1 - - no reason"


def test_a_changed_prompt_id_is_found_for_every_call_behind_it(damaged):
    fields = damaged("sequences", 0, "token_ids", 1, value=12)
    assert found(fields) == [
        "E401 ro-0001 0 7 sequence differs from the prompt that the engine ran for call c0",
        "E401 ro-0001 0 19 sequence differs from the prompt that the engine ran for call c1",
    ]


def test_a_call_trained_twice_is_found(damaged):
    fields = damaged("sequences", 1, "segments", 2, "trainable", value=True)
    assert found(fields) == [
        "E501 ro-0001 1 - call c0 is trained in sequences 0 and 1",
        "E503 ro-0001 1 - call c0 says sequence 0, found in 1",
    ]


def test_a_dropped_number_is_found(damaged):
    fields = damaged("sequences", 0, "logprobs", value=[-0.25, -1.5, -0.125, -0.0625, -0.75, -0.5])
    assert found(fields) == ["E301 ro-0001 0 - 6 log-probabilities for 7 sampled tokens"]


def test_a_sentinel_is_no_log_probability(damaged):
    fields = damaged("sequences", 0, "logprobs", 2, value=-9999.0)
    assert found(fields) == ["E302 ro-0001 0 2 log-probability -9999 at sampled token 2"]


def test_a_moved_border_is_found_and_nothing_is_said_twice(damaged):
    fields = damaged("sequences", 0, "segments", 3, "start", value=12)
    assert found(fields) == ["E201 ro-0001 0 11 gap, overlap or empty segment at token 11"]


DAMAGE = {
    "E105": [
        (("calls", 1, "parent"), 1),
        (("calls", 0, "head"), 1),
        (("calls", 0, "sampling"), -1),
        (("calls", 0, "sequence"), 2),
        (("sequences", 0, "head"), 3),
        (("sequences", 0, "leaf_call"), 3),
        (("sequences", 0, "messages"), [6]),
        (("sequences", 0, "segments", 2, "call"), 9),
        (("heads", 0, "tools"), 1),
    ],
    "E103": [
        (("status"), "gone"),
        (("calls", 0, "history"), "teleported"),
        (("calls", 0, "kind"), "robot"),
        (("calls", 0, "finish"), "eos"),
        (("calls", 0, "logprobs_mode"), "cooked"),
        (("sequences", 0, "segments", 0, "kind"), "padding"),
    ],
    "E106": [
        (("finished_at",), "2026-11-01T10:00:00Z"),
        (("calls", 0, "finished_at"), "2026-11-01T10:00:00Z"),
    ],
    "E107": [(("trainable",), False)],
    "E202": [(("sequences", 0, "segments", 6, "end"), 21), (("sequences", 0, "segments", 6, "end"), 23)],
    "E203": [(("sequences", 0, "segments", 2, "call"), None)],
    "E204": [(("sequences", 0, "segments", 3, "trainable"), True)],
    "E205": [(("sequences", 1, "segments", 2, "mask_reason"), None)],
    "E206": [(("sequences", 0, "prompt_length"), 8)],
    "E207": [(("sequences", 0, "token_ids", 1), 128), (("sequences", 0, "token_ids", 1), -1)],
    "E209": [
        (("sequences", 0, "segments", 2, "policy_version_min"), 8),
        (("sequences", 0, "segments", 2, "policy_version_min"), None),
    ],
    "E301": [
        (("sequences", 0, "token_weights"), [1.0]),
        (("sequences", 0, "advantages"), [1.0]),
    ],
    "E302": [(("sequences", 0, "logprobs", 0), 0.5), (("sequences", 0, "logprobs", 0), -1e39)],
    "E303": [(("sequences", 0, "logprobs", 3), None)],
    "E304": [
        (("sequences", 0, "segments", 2, "weight"), -0.5),
        (("sequences", 0, "token_weights"), [1, 1, 1, 1, 1, 1, -1]),
    ],
    "E305": [(("calls", 0, "logprobs_mode"), "none"), (("calls", 0, "logprobs_mode"), "unknown")],
    "E401": [(("calls", 2, "prompt_sha256"), "0" * 64)],
    "E402": [(("calls", 2, "completion_sha256"), "0" * 64), (("sequences", 0, "token_ids", 19), 61)],
    "E403": [(("calls", 1, "usage", "prompt_tokens"), 18)],
    "E404": [(("calls", 1, "usage", "completion_tokens"), 4)],
    "E405": [(("calls", 2, "parent"), 1)],
    "E406": [(("calls", 1, "finish"), "length"), (("samplings", 0, "stop_token_ids"), [9])],
    "E407": [(("sequences", 0, "leaf_call"), 0)],
    "E502": [(("calls", 1, "kind"), "auxiliary")],
    "E503": [(("calls", 1, "sequence"), 1)],
    "E504": [(("calls", 1, "sequence"), None), (("calls", 1, "sequence"), 1)],
    "E505": [
        (("token_counts", "sampled"), 10),
        (("token_counts", "trainable"), 8),
        (("token_counts", "masked"), {"aborted": 1}),
    ],
    "W801": [(("reward",), None)],
    "W804": [
        (("samplings", 0, "top_p"), 0.9),
        (("samplings", 0, "top_k"), 20),
        (("samplings", 0, "min_p"), 0.1),
    ],
    "W805": [(("sequences", 0, "segments", 2, "policy_version_min"), 5)],
    "W806": [(("shiny",), 1), (("calls", 0, "shiny"), None)],
}


@pytest.mark.parametrize(
    ("code", "path", "value"), [(code, path, value) for code, cases in DAMAGE.items() for path, value in cases]
)
def test_each_rule_is_missed_when_it_is_broken(example, code, path, value):
    path = (path,) if isinstance(path, str) else path
    assert code in codes(put(example, *path, value=value))


def test_a_sequence_that_is_empty_covers_nothing(example):
    example["sequences"][0] |= {"token_ids": [], "segments": [], "logprobs": []}
    assert "E202" in codes(example)


def test_a_completion_in_pieces_is_found(example):
    segments = example["sequences"][0]["segments"]
    segments[3] = {**segments[3], "kind": "sampled", "call": 1, "mask_reason": "user:x"}
    assert "E208" in codes(example)


def test_a_completion_may_be_cut_into_adjacent_segments(example):
    segments = example["sequences"][0]["segments"]
    segments[2:3] = [{**segments[2], "end": 8}, {**segments[2], "start": 8}]
    assert found(example) == []


def test_one_masked_token_between_others_is_no_fault(example):
    segments = example["sequences"][0]["segments"]
    hidden = {"trainable": False, "mask_reason": "logprob_missing"}
    segments[2:3] = [
        {**segments[2], "end": 8},
        {**segments[2], "start": 8, "end": 9, **hidden},
        {**segments[2], "start": 9},
    ]
    example["sequences"][0]["logprobs"][1] = None
    example["token_counts"] |= {"trainable": 8, "masked": {"logprob_missing": 1}}
    assert found(example) == []


def test_shares_of_one_call_in_two_sequences_are_allowed_if_each_is_less_than_whole(example):
    for sequence in example["sequences"]:
        sequence["segments"][2] |= {"trainable": True, "weight": 0.5}
    del example["sequences"][1]["segments"][2]["mask_reason"]
    assert found(example) == []


def test_raw_numbers_at_another_temperature_are_a_warning(example):
    example["samplings"][0]["temperature"] = 0.7
    for call in example["calls"]:
        call["logprobs_mode"] = "raw"
    assert found(example) == [
        "W804 ro-0001 - 0 trainer will recompute another distribution: temperature is not in raw log-probabilities"
    ]


def test_a_word_of_a_newer_minor_version_is_a_warning(example):
    example["format_version"] = "1.3"
    example["calls"][0]["history"] = "teleported"
    assert codes(example) == ["W806"]


def test_media_must_stand_in_context_and_hold_their_placeholder(example):
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
    assert found(example) == []
    for change, code in (
        ({"offset": 6}, "E601"),
        ({"offset": 21, "length": 5}, "E601"),
        ({"placeholder_id": 99}, "E603"),
        ({"num_tokens": 3}, "E603"),
    ):
        example["sequences"][0]["media"] = [entry | change]
        assert code in codes(example)
    example["sequences"][0]["media"] = [entry, entry]
    assert codes(example) == ["E601"]


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


@pytest.mark.parametrize("ending", [form.value for form in FileForm])
def test_a_file_is_checked_record_by_record(tmp_path, example, ending):
    other = copy.deepcopy(example) | {"rollout_id": "ro-2", "reward": 0.0}
    third = copy.deepcopy(example) | {"rollout_id": "ro-3"}
    third["sequences"][0]["token_ids"][1] = 12
    path = tmp_path / f"a{ending}"
    write(path, [decode_line(json.dumps(fields).encode()) for fields in (example, other, third, example)])
    assert [str(violation) for violation in validate_file(path)] == [
        "E401 ro-3 0 7 sequence differs from the prompt that the engine ran for call c0",
        "E401 ro-3 0 19 sequence differs from the prompt that the engine ran for call c1",
        "E104 ro-0001 - - second rollout with this id (attempt 1)",
    ]


def test_lines_that_are_no_rollouts_are_named_and_the_rest_is_checked(tmp_path, example):
    path = tmp_path / "a.jsonl"
    newer = example | {"format_version": "2.0"}
    odd = example | {"attempt": 0}
    path.write_text("\n".join(["[]", json.dumps(newer), json.dumps(odd), json.dumps(example), '{"form']))
    assert [(line.code, line.message.split(":")[0]) for line in validate_file(path)] == [
        ("E101", "line 1"),
        ("E102", "line 2"),
        ("E103", "line 3"),
        ("E101", "line 5"),
        ("W802", "no learning signal in group g-17"),
    ]


def test_modes_that_differ_within_a_file_are_a_warning(tmp_path, example):
    other = copy.deepcopy(example) | {"rollout_id": "ro-2", "reward": 0.0}
    for call in other["calls"]:
        call["logprobs_mode"] = "raw"
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(example) + "\n" + json.dumps(other))
    assert [str(line) for line in validate_file(path)] == ["W803 - - - mixed log-probability modes: processed, raw"]


def test_a_file_that_is_not_there_is_refused():
    with pytest.raises(CallerError, match="is no file"):
        list(validate_file("nowhere.jsonl"))
