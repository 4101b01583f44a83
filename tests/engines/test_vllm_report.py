"""What is told of a vLLM server at start."""

from __future__ import annotations

import msgspec
import pytest

from turnstile.engines.vllm_probe import Found, Opened
from turnstile.engines.vllm_report import capabilities
from turnstile.engines.vllm_shapes import ModelEntry
from turnstile.generation import LogprobsMode

ALL = Found(
    version="0.32.0", entry=ModelEntry("m", "vllm", "/m", None, 2048), models=("m",), generate=Opened.HONOURED,
    completions=Opened.HONOURED, chat=Opened.HONOURED, measured=LogprobsMode.PROCESSED, max_top_logprobs=20,
    stop_in_ids=True, constrains=True, parses=True, derenders=True, has_spans=True, has_weight_route=True, images=True,
)  # fmt: skip


def changed(**fields):
    return capabilities(msgspec.structs.replace(ALL, **fields))


def test_a_server_that_does_everything_lacks_nothing():
    can = capabilities(ALL)
    assert can.missing == ()
    assert [each.what for each in can.present] == [
        "token ids in and out", "prompt ids echoed", "log-probabilities", "stop token", "JSON schemas and grammars",
        "its own parsers", "weight versions", "images", "context length",
    ]  # fmt: skip
    assert (can.engine, can.version, can.models, can.context_length) == ("vllm", "0.32.0", ("m",), 2048)
    assert (can.images, can.reads_answers, can.echoes_prompt_ids) == ("collapsed", True, "ids")
    assert can.constraints == {"schema", "grammar", "calls"}


@pytest.mark.parametrize(
    ("fields", "what", "remedy"),
    [
        ({"generate": Opened.CLOSED}, "/inference/v1/generate", "--enable-scale-out"),
        ({"measured": LogprobsMode.RAW}, "log-probabilities that were sampled from", "processed_logprobs"),
        ({"measured": LogprobsMode.UNKNOWN}, "meaning of log-probabilities", "--max-logprobs 20"),
        ({"parses": False}, "its own parsers", "--tool-call-parser NAME"),
        ({"chat": Opened.IGNORED, "derenders": False}, "its own parsers", "--enable-scale-out"),
        ({"constrains": False, "generate": Opened.CLOSED}, "JSON schemas and grammars", "--enable-scale-out"),
        ({"stop_in_ids": False}, "stop token among the ids", ""),
        ({"has_spans": False, "has_weight_route": False}, "weight version", "VLLM_SERVER_DEV_MODE=1"),
        ({"max_top_logprobs": 5}, "alternatives", "--max-logprobs 20"),
    ],
)
def test_each_missing_thing_has_its_flag(fields, what, remedy):
    lacking = {each.what: each for each in changed(**fields).missing}
    assert remedy in lacking[what].remedy
    assert lacking[what].cost


def test_what_cannot_be_enforced_is_not_offered():
    assert changed(constrains=False).constraints == {"calls"}
    assert changed(chat=Opened.IGNORED).constraints == {"schema", "grammar"}
    assert changed(images=False).images == "none"


def test_weights_that_have_to_be_asked_for_are_told_so():
    told = {each.what: each.how for each in changed(has_spans=False).present}
    assert told["weight versions"] == "asked for before and after an answer"
