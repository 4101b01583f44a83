"""`/inference/v1/generate`, in bytes that vLLM 0.32.0 sent."""

from __future__ import annotations

import json

import msgspec
import pytest

from turnstile.conversation import Media
from turnstile.engines.vllm_door import Ask, Piece, Scored
from turnstile.engines.vllm_generate import Generate, data_url
from turnstile.engines.vllm_shapes import Counts, PlaceholderRange, WeightSpan
from turnstile.generation import Draw, GrammarConstraint

FIRST = (
    b'{"request_id":"generate-tokens-1","usage":null,"prompt_token_ids":[2,0,0],'
    b'"mm_placeholders":{"image":[{"offset":1,"length":2}]},"output_mode":"tokens","choices":[{"index":0,'
    b'"finish_reason":null,"stop_reason":null,"token_ids":[77571],"routed_experts":null,"sampling_mask":null,'
    b'"weight_versions":null,"logprobs":{"content":[{"token_id":77571,"logprob":-1.9048105478286743,"rank":5,'
    b'"top_logprobs":[{"token_id":77571,"logprob":-1.9048105478286743,"rank":5},{"token_id":43932,'
    b'"logprob":-9999.0,"rank":null}]}]}}]}'
)
LAST = (
    b'{"request_id":"generate-tokens-1","usage":null,"output_mode":"tokens","choices":[{"index":0,'
    b'"finish_reason":"stop","stop_reason":151645,"token_ids":[151645],"logprobs":null,'
    b'"weight_versions":[{"version":"default","start":0,"end":2}]}]}'
)
USAGE = (
    b'{"request_id":"generate-tokens-1","usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2},'
    b'"choices":[]}'
)


def test_an_event_brings_ids_numbers_echo_and_ranges():
    assert Generate().piece(FIRST) == Piece(
        ids=[77571],
        scored=[Scored(77571, -1.9048105478286743, ((77571, -1.9048105478286743),))],
        echo=[2, 0, 0],
        ranges=(PlaceholderRange(1, 2),),
        request_id="generate-tokens-1",
    )


def test_the_last_ones_bring_the_end_the_weights_and_the_counts():
    assert Generate().piece(LAST) == Piece(
        ids=[151645],
        finish="stop",
        stop_reason=151645,
        spans=(WeightSpan("default", 0, 2),),
        request_id="generate-tokens-1",
    )
    assert Generate().piece(USAGE) == Piece(counts=Counts(3, 2), request_id="generate-tokens-1")


@pytest.fixture
def written(prompt):
    def _written(draw, media=()):
        asked = msgspec.structs.replace(prompt([2, 0]), media=media)
        return json.loads(Generate().body(Ask(asked, b"2,0", draw, 5, "m", 100)))

    return _written


def test_a_request_without_a_limit_leaves_the_limit_to_the_server(written):
    body = written(Draw())
    assert "max_tokens" not in body["sampling_params"]
    assert {name: body[name] for name in ("token_ids", "model", "stream", "stream_options", "return_token_ids")} == {
        "token_ids": [2, 0],
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    assert "content_parts" not in body
    assert "reasoning_ended" not in body


def test_text_is_made_only_where_stop_strings_are_looked_for(written):
    assert written(Draw())["sampling_params"]["detokenize"] is False
    assert written(Draw(stop=("x",)))["sampling_params"]["detokenize"] is True


def test_a_constraint_does_not_wait_for_the_end_of_the_reasoning(written):
    body = written(Draw(constraint=GrammarConstraint("g")))
    assert body["reasoning_ended"] is True
    assert body["sampling_params"]["structured_outputs"] == {"grammar": "g"}


def test_images_go_as_they_came(written):
    media = (Media("s", "image/jpeg", b"\xff"),)
    assert written(Draw(), media)["content_parts"] == [{"type": "image_url", "url": "data:image/jpeg;base64,/w=="}]
    assert data_url(media[0]) == "data:image/jpeg;base64,/w=="
