from __future__ import annotations

import json

import pytest

from turnstile.errors import CallerError
from turnstile.protocols.gemini_request import declarations_of, read_count, read_request, whole_number

CONTENTS = [{"role": "user", "parts": [{"text": "hi"}]}]


def read(**fields):
    return read_request(json.dumps({"contents": CONTENTS, **fields}).encode())


def refused(**fields) -> tuple[str, str]:
    with pytest.raises(CallerError) as caught:
        read(**fields)
    return caught.value.code, caught.value.param


def test_members_that_are_not_known_are_noticed_by_name():
    _, unknown = read(zzz=1, labels={}, generationConfig={"foo": 1, "topK": 2}, safetySettings=[])
    assert unknown == ("generationConfig.foo", "zzz")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"cachedContent": "cachedContents/1"}, "cachedContent"),
        ({"regex": "a"}, "regex"),
        ({"generationConfig": {"speechConfig": {}}}, "generationConfig.speechConfig"),
        ({"generationConfig": {"responseModalities": ["IMAGE"]}}, "generationConfig.responseModalities"),
    ],
)
def test_what_would_change_the_answer_is_refused_by_name(fields, param):
    assert refused(**fields) == ("unsupported_parameter", param)


def test_what_asks_for_nothing_is_let_pass():
    read(cachedContent="", generationConfig={"responseModalities": ["TEXT"], "enableAffectiveDialog": False})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"contents": []}, "contents"),
        ({"contents": 3}, "contents"),
        ({"generationConfig": {"topP": 2}}, "generationConfig.topP"),
        ({"generationConfig": 3}, "generationConfig"),
        ({"tools": [3]}, "tools[0]"),
        ({"contents": [{"parts": [{"functionCall": {}}]}]}, "contents[0].parts[0].functionCall.name"),
    ],
)
def test_a_wrong_value_is_refused_by_its_place(fields, param):
    assert refused(**fields)[1] == param


def test_googles_other_spelling_is_read_too():
    body = {
        "contents": {"parts": {"text": "hi"}},
        "system_instruction": {"parts": {"text": "s"}},
        "tools": {"function_declarations": {"name": "f", "parameters_json_schema": {"min_items": 1}}},
        "generation_config": {"max_output_tokens": 3, "thinking_config": {"include_thoughts": True}},
    }
    wire, unknown = read_request(json.dumps(body).encode())
    assert (wire.contents[0].parts[0].text, wire.system_instruction.parts[0].text) == ("hi", "s")
    assert (wire.generation_config.max_output_tokens, wire.generation_config.thinking_config.include_thoughts) == (
        3,
        True,
    )
    (function,) = declarations_of(wire.tools[0], "tools[0]")
    assert (function.name, json.loads(bytes(function.parameters_json_schema))) == ("f", {"min_items": 1})
    assert unknown == ()


def test_a_count_takes_the_request_itself_or_one_inside():
    itself = read_count(json.dumps({"contents": CONTENTS}).encode())
    inside = read_count(json.dumps({"generateContentRequest": {"model": "models/m", "contents": CONTENTS}}).encode())
    other = read_count(json.dumps({"generate_content_request": {"contents": CONTENTS[0]}}).encode())
    assert itself == inside == other


def test_a_whole_number_may_come_as_a_float():
    assert [whole_number(each, "p") for each in (None, 40.0, -1.0)] == [None, 40, -1]
    with pytest.raises(CallerError, match=r"40\.5"):
        whole_number(40.5, "p")
