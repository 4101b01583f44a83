"""What of a Responses body is read, let pass, noticed or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnstile.errors import CallerError
from turnstile.protocols.responses_request import read_request


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "input": "hi", **fields}).encode()


def test_unknown_fields_are_noticed_by_name_and_do_not_fail():
    assert read_request(body(zeta=1, alpha={"x": 2})).unknown_fields == ("alpha", "zeta")


@pytest.mark.parametrize(
    "field",
    [
        "client_metadata",
        "max_tool_calls",
        "prompt_cache_key",
        "safety_identifier",
        "service_tier",
        "stream_options",
        "user",
    ],
)
def test_fields_that_change_nothing_are_let_pass(field: str):
    assert read_request(body(**{field: {"any": "thing"}})).unknown_fields == ()


@pytest.mark.parametrize(
    "fields",
    [{"background": False}, {"truncation": "disabled"}, {"conversation": None}, {"context_management": []}, {"n": 1}],
)
def test_a_refused_field_that_asks_for_nothing_is_let_pass(fields: dict[str, Any]):
    assert read_request(body(**fields)).unknown_fields == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("background", True), ("truncation", "auto"), ("conversation", "conv_1"), ("prompt", {"id": "pmpt_1"}),
        ("context_management", [{"type": "compaction"}]), ("moderation", {"model": "x"}), ("logit_bias", {"1": 2}),
        ("guided_json", {"type": "object"}),
    ],
)  # fmt: skip
def test_a_field_that_cannot_be_served_is_refused_by_name(field: str, value: object):
    with pytest.raises(CallerError) as caught:
        read_request(body(**{field: value}))
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", field)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_output_tokens": 0}, "max_output_tokens"), ({"temperature": 2.1}, "temperature"),
        ({"top_logprobs": 21}, "top_logprobs"), ({"metadata": {"a": 1}}, "metadata"), ({"input": 7}, "input"),
        ({"input": [{"content": 7}]}, "input[0].content"), ({"model": ""}, "model"), ({"stream": "yes"}, "stream"),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_by_field(fields: dict[str, Any], param: str):
    with pytest.raises(CallerError) as caught:
        read_request(body(**fields))
    assert (caught.value.code, caught.value.param) == ("invalid_value", param)
