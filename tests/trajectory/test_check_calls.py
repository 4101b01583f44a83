from __future__ import annotations

import json

import pytest

from turnstile.generation import Forked
from turnstile.reasons import ForkReason
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.format import encode_line


@pytest.mark.parametrize(
    ("code", "path", "value"),
    [
        ("E401", ("calls", 2, "prompt_sha256"), "0" * 64),
        ("E402", ("calls", 2, "completion_sha256"), "0" * 64),
        ("E402", ("sequences", 0, "token_ids", 19), 61),
        ("E403", ("calls", 1, "usage", "prompt_tokens"), 18),
        ("E404", ("calls", 1, "usage", "completion_tokens"), 4),
        ("E405", ("calls", 2, "parent"), 1),
        ("E406", ("calls", 1, "finish"), "length"),
        ("E406", ("samplings", 0, "stop_token_ids"), [9]),
        ("E407", ("sequences", 0, "leaf_call"), 0),
    ],
)
def test_ids_that_the_engine_did_not_run_or_sample_are_found(damaged, codes_of, code, path, value):
    assert code in codes_of(damaged(*path, value=value))


def test_a_changed_prompt_id_is_found_for_every_call_behind_it(damaged, lines_of):
    fields = damaged("sequences", 0, "token_ids", 1, value=12)
    assert lines_of(fields) == [
        "E401 ro-0001 0 7 sequence differs from the prompt that the engine ran for call c0",
        "E401 ro-0001 0 19 sequence differs from the prompt that the engine ran for call c1",
    ]


@pytest.fixture
def rewritten(journal):
    """Two sequences: an answer, and a rewritten history in which its ids stand again without their last one."""
    forked = Forked(ForkReason.HISTORY_REWRITTEN)
    first = journal.turn("a", [1, 10, 20], [30, 31, 2])
    journal.turn("b", [10, 11, 20], [60, 2], history=forked, replayed=[first], lost=1)
    return json.loads(encode_line(assemble(journal.forest())))


def test_ids_that_were_put_back_may_lack_their_stop(rewritten, lines_of):
    assert [line for line in lines_of(rewritten) if line.startswith("E")] == []


@pytest.mark.parametrize("call", [0, 1])
def test_ids_that_were_put_back_are_those_of_the_call_that_they_name(rewritten, lines_of, call):
    second = rewritten["sequences"][1]
    if call:
        second["segments"][1]["call"] = call
    else:
        second["token_ids"][1] = 33
    named = "ab"[call]
    assert f"E402 ro 1 1 replayed ids of call {named} differ from what was sampled" in lines_of(rewritten)


def test_replayed_ids_of_a_call_whose_own_sequence_is_not_in_the_file_are_held_against_its_hash_and_length(
    rewritten, lines_of
):
    rewritten["calls"][0]["sequence"] = None
    assert not [line for line in lines_of(rewritten) if line.startswith("E402")]
    rewritten["calls"][0]["usage"]["completion_tokens"] = 1
    assert [line for line in lines_of(rewritten) if line.startswith("E402")] == [
        "E402 ro 1 1 replayed ids of call a differ from what was sampled"
    ]
