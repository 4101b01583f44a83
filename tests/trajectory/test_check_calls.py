from __future__ import annotations

import pytest


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
