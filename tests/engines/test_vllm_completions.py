"""`/v1/completions`, in bytes that vLLM 0.32.0 sent."""

from __future__ import annotations

import json

import pytest

from turnstile.engines.vllm_completions import Completions
from turnstile.engines.vllm_door import Ask, Piece, Scored
from turnstile.engines.vllm_shapes import Counts
from turnstile.errors import EngineError
from turnstile.generation import Draw

FIRST = (
    b'{"id":"cmpl-1","object":"text_completion","created":1,"model":"tiny","choices":[{"index":0,"text":"a",'
    b'"logprobs":{"text_offset":[0],"token_logprobs":[-0.5],"tokens":["token_id:64"],'
    b'"top_logprobs":[{"token_id:64":-0.5,"token_id:65":-1.25}]},"finish_reason":null,"stop_reason":null,'
    b'"prompt_token_ids":[2,3],"token_ids":[64]}]}'
)
LAST = (
    b'{"id":"cmpl-1","object":"text_completion","created":1,"model":"tiny","choices":[{"index":0,"text":"",'
    b'"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":[]}]}'
)
USAGE = b'{"id":"cmpl-1","choices":[],"usage":{"prompt_tokens":2,"total_tokens":3,"completion_tokens":1}}'


def test_events_bring_ids_numbers_echo_end_and_counts():
    pieces = [Completions().piece(event) for event in (FIRST, LAST, USAGE)]
    assert pieces == [
        Piece(
            ids=[64],
            scored=[Scored(64, -0.5, ((64, -0.5), (65, -1.25)))],
            echo=[2, 3],
            request_id="cmpl-1",
        ),
        Piece(finish="length", request_id="cmpl-1"),
        Piece(counts=Counts(2, 1), request_id="cmpl-1"),
    ]


def test_numbers_that_are_more_or_fewer_than_their_tokens_cannot_be_true():
    with pytest.raises(EngineError, match="2 `tokens` and 1 `token_logprobs`"):
        Completions().piece(
            b'{"choices":[{"logprobs":{"tokens":["token_id:1","token_id:2"],"token_logprobs":[-1.0]}}]}'
        )


def test_the_limit_is_always_said_because_the_server_s_is_16(prompt):
    body = json.loads(Completions().body(Ask(prompt([2, 3]), b"2,3", Draw(top_logprobs=4), 5, "m", 100)))
    assert body == {
        "prompt": [2, 3], "model": "m", "max_tokens": 98, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0,
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "seed": 5, "stop": [],
        "stop_token_ids": [], "logprobs": 4, "stream": True, "stream_options": {"include_usage": True},
        "return_token_ids": True, "return_tokens_as_token_ids": True, "add_special_tokens": False,
    }  # fmt: skip
