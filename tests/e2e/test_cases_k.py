"""Public case K1 as only chat completions have it, through the whole server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

STREAMS = pytest.mark.parametrize("stream", [False, True])
DUCK = "\N{DUCK}"


def byte_ids(room: Any, text: str) -> list[int]:
    """A text spelled with one token a byte."""
    letters = {room.tokenizer.token_bytes(each): each for each in range(300)}
    return [letters[bytes([each])] for each in text.encode()]


@STREAMS
def test_case_k1_log_probabilities_for_the_client_have_one_entry_a_token_and_its_true_bytes(
    wired: Callable[..., Any], stream: bool
) -> None:
    room = wired()
    duck = byte_ids(room, DUCK)
    room.script([*duck, *room.ids("<|im_end|>")])
    said = room.agent().say("emoji", stream=stream, logprobs=True, top_logprobs=1)
    choices = [choice for event in (said.events if stream else [said.json]) for choice in event["choices"]]
    shown = [entry for choice in choices if choice.get("logprobs") for entry in choice["logprobs"]["content"]]
    assert [entry["bytes"] for entry in shown[:4]] == [[each] for each in DUCK.encode()]
    assert [entry["logprob"] for entry in shown[:4]] == pytest.approx([room.fake.logprob(i) for i in duck], abs=1e-4)
