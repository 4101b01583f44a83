from __future__ import annotations

import json

import pytest

from turnstile.errors import CallerError
from turnstile.protocols.chat_request import read_request

MINIMAL = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def unknown_in(**fields: object) -> tuple[str, ...]:
    return read_request(json.dumps({**MINIMAL, **fields}).encode())[1]


def refused(**fields: object) -> tuple[str, str, str]:
    with pytest.raises(CallerError) as caught:
        unknown_in(**fields)
    return caught.value.code, caught.value.param, caught.value.problem


def test_unknown_fields_are_noticed_by_name_and_do_not_fail():
    assert unknown_in(zeta=1, alpha={"x": [1]}, temperature=1) == ("alpha", "zeta")


def test_a_flood_of_unknown_names_is_bounded():
    names = unknown_in(**{f"{at:04}{'x' * 500}": None for at in range(1000)})
    assert names == tuple(f"{at:04}{'x' * 96}" for at in range(32))


def test_unknown_members_of_messages_are_skipped():
    message = {"role": "user", "content": "hi", "provider_specific_fields": {"reasoning": "r"}, "cache_control": {}}
    assert unknown_in(messages=[message]) == ()


@pytest.mark.parametrize(
    "field",
    ["user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier", "verbosity", "rid"],
)
def test_transport_fields_pass_in_silence(field: str):
    assert unknown_in(**{field: {"any": "value"}}) == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("audio", {"voice": "alloy", "format": "wav"}),
        ("modalities", ["text", "audio"]),
        ("prediction", {"type": "content", "content": "x"}),
        ("web_search_options", {}),
        ("moderation", {"model": "x"}),
        ("guided_json", {"type": "object"}),
        ("structured_outputs", {"regex": "a+"}),
        ("min_tokens", 5),
        ("ignore_eos", True),
        ("stop_token_ids", [151645]),
        ("return_token_ids", True),
        ("chat_template", "{{ messages }}"),
        ("grammar", "root ::= 'a'"),
        ("mirostat", 2),
        ("skip_special_tokens", False),
    ],
)
def test_a_field_that_changes_the_answer_and_cannot_be_served_is_refused_by_name(field: str, value: object):
    assert refused(**{field: value}) == ("unsupported_parameter", field, f"`{field}` cannot be served here")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("audio", None),
        ("modalities", ["text"]),
        ("min_tokens", 0),
        ("ignore_eos", False),
        ("stop_token_ids", []),
        ("best_of", 1),
        ("length_penalty", 1),
        ("grammar", ""),
        ("skip_special_tokens", True),
        ("mm_processor_kwargs", {}),
    ],
)
def test_a_refused_field_that_asks_for_nothing_passes(field: str, value: object):
    assert unknown_in(**{field: value}) == ()
