from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Self

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.errors import CallerError
from turnstile.tokens import LogprobRun
from turnstile.trajectory.format import decode_line, encode_line
from turnstile.trajectory.shapes import Float32Run


def line(fields) -> bytes:
    return json.dumps(fields).encode()


def fault(fields) -> tuple[str, str]:
    with pytest.raises(CallerError) as caught:
        decode_line(line(fields) if isinstance(fields, dict) else fields)
    return caught.value.code, caught.value.problem


def test_a_rollout_written_again_says_the_same(example):
    assert json.loads(encode_line(decode_line(line(example)))) == example


def test_ids_and_log_probabilities_are_plain_lists(example):
    sequence = json.loads(encode_line(decode_line(line(example))))["sequences"][1]
    assert (sequence["token_ids"][-2:], sequence["logprobs"][-2:]) == ([70, 2], [-2.0, -0.0078125])


def test_fields_of_a_newer_version_stay_where_they_stood(example):
    example["format_version"] = "1.7"
    example["shiny"] = {"a": [1]}
    example["unknown"] = "even under this name"
    example["heads"][0]["revision_date"] = "today"
    example["calls"][1]["usage"]["thinking_tokens"] = 5
    example["sequences"][0]["segments"][2]["colour"] = None
    example["token_counts"]["skipped"] = 0
    rollout = decode_line(line(example))
    assert rollout.calls[1].usage.unknown == {"thinking_tokens": 5}
    assert json.loads(encode_line(rollout)) == example


def test_a_word_of_a_newer_version_is_kept(damaged):
    assert decode_line(line(damaged("calls", 0, "history", value="teleported"))).calls[0].history == "teleported"


def test_a_line_that_is_no_object_is_no_rollout():
    assert fault(b"[1]") == ("E101", "not a rollout object")
    assert fault(b'{"format": "turnst')[0] == "E101"
    assert fault(b'{"reward": NaN}')[0] == "E101"


def test_another_major_version_is_refused_by_name(damaged):
    code, problem = fault(damaged("format_version", value="2.0"))
    assert (code, problem) == ("E102", "version 2.0 not readable, needs a turnstile that reads format 2")
    assert fault(damaged("format", value="atif"))[0] == "E102"


def test_a_field_that_is_missing_or_of_another_type_is_named(example, damaged):
    assert fault(damaged("calls", 1, "head", value="x")) == ("E103", "field calls[1].head: expected int, got str")
    assert fault(damaged("created_at", value="2026-12-01T10:00:00"))[0] == "E103"
    assert fault(damaged("sequences", 0, "token_ids", value=[1, 2**40]))[0] == "E103"
    assert fault(damaged("sequences", 0, "token_ids", value=[1, "x"]))[0] == "E103"
    assert fault(damaged("sequences", 0, "logprobs", value={}))[0] == "E103"
    assert fault(damaged("sequences", 0, "segments", 2, "weight", value=1e39))[0] == "E103"
    del example["calls"]
    assert fault(example) == (
        "E103",
        "field of the rollout: object missing required field calls",
    )


def test_a_number_that_is_not_finite_is_never_written(example):
    rollout = decode_line(line(example))
    sequence = msgspec.structs.replace(rollout.sequences[0], advantages=Float32Run.of([0.0] * 6 + [float("inf")]))
    for bad, where in (
        (msgspec.structs.replace(rollout, reward=float("nan")), "reward"),
        (msgspec.structs.replace(rollout, extra={"a.b": [float("nan")]}), "extra.a.b[0]"),
        (msgspec.structs.replace(rollout, sequences=(sequence,)), "sequences[0].advantages"),
    ):
        with pytest.raises(CallerError, match="is not finite") as caught:
            encode_line(bad)
        assert (caught.value.code, caught.value.problem.split()[0]) == ("E106", where)


def test_times_have_six_digits_and_a_z(example):
    rollout = msgspec.structs.replace(decode_line(line(example)), created_at=datetime(2026, 1, 2, tzinfo=UTC))
    assert json.loads(encode_line(rollout))["created_at"] == "2026-01-02T00:00:00.000000Z"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False) | st.none(), max_size=20))
def test_nine_digits_restore_every_float32(example, values):
    run = LogprobRun.of(values)
    sequence = msgspec.structs.replace(decode_line(line(example)).sequences[0], logprobs=run)
    rollout = msgspec.structs.replace(decode_line(line(example)), sequences=(sequence,))
    assert decode_line(encode_line(rollout)).sequences[0].logprobs == run


def test_negative_zero_stays_negative_zero(example):
    weighted = msgspec.structs.replace(decode_line(line(example)).sequences[0], advantages=Float32Run.of([-0.0] * 7))
    rollout = msgspec.structs.replace(decode_line(line(example)), sequences=(weighted,))
    assert decode_line(encode_line(rollout)).sequences[0].advantages == Float32Run.of([-0.0] * 7)


def test_what_is_nested_deeper_than_any_stack_is_refused_in_a_sentence(example):
    deep: dict = {}
    inner = deep
    for _ in range(900):
        inner["a"] = {}
        inner = inner["a"]
    rollout = decode_line(line(example | {"extra": deep}))
    with pytest.raises(CallerError, match="cannot be written as JSON"):
        encode_line(rollout)
    with pytest.raises(CallerError, match="cannot be written as JSON"):
        encode_line(msgspec.structs.replace(rollout, extra={"a": 2**70}))


class _Interrupted(datetime):
    """A time at which somebody presses Ctrl-C."""

    def astimezone(self, tz: object = None) -> Self:
        raise KeyboardInterrupt


def test_an_interrupt_while_a_rollout_is_written_is_no_fault_of_the_rollout(example):
    rollout = decode_line(json.dumps(example).encode())
    when = msgspec.structs.replace(rollout.calls[0], started_at=_Interrupted(2026, 12, 1, tzinfo=UTC))
    with pytest.raises(KeyboardInterrupt):
        encode_line(msgspec.structs.replace(rollout, calls=(when, *rollout.calls[1:])))
