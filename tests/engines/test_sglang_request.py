from __future__ import annotations

import msgspec
import pytest

from turnstile.conversation import Media
from turnstile.engines.sglang_request import (
    STOP_STRINGS,
    Request,
    image_data,
    logprobs_mode,
    sampling_of,
    stream_interval,
    written,
)
from turnstile.generation import Draw, GrammarConstraint, LogprobsMode

TEMPERATURE, RAW, UNKNOWN = LogprobsMode.TEMPERATURE, LogprobsMode.RAW, LogprobsMode.UNKNOWN
PENALISED = Draw(presence_penalty=0.5)
BIASED = Draw(logit_bias=((5, 1.0),))
CONSTRAINED = Draw(constraint=GrammarConstraint('root ::= "a"'))


@pytest.mark.parametrize(
    ("draw", "of_server", "mode"),
    [
        (Draw(), TEMPERATURE, TEMPERATURE),
        (Draw(temperature=0.5, top_p=0.9), TEMPERATURE, TEMPERATURE),
        (Draw(temperature=0.0), TEMPERATURE, RAW),
        (Draw(temperature=1e-7), TEMPERATURE, RAW),
        (PENALISED, TEMPERATURE, LogprobsMode.PROCESSED),
        (BIASED, TEMPERATURE, LogprobsMode.PROCESSED),
        (CONSTRAINED, TEMPERATURE, LogprobsMode.PROCESSED),
        (msgspec.structs.replace(PENALISED, top_k=5), TEMPERATURE, UNKNOWN),
        (msgspec.structs.replace(PENALISED, top_p=0.9), TEMPERATURE, UNKNOWN),
        (msgspec.structs.replace(BIASED, min_p=0.1), TEMPERATURE, UNKNOWN),
        (msgspec.structs.replace(CONSTRAINED, temperature=0.0), TEMPERATURE, UNKNOWN),
        (Draw(temperature=0.5, top_p=0.9), RAW, RAW),
        (PENALISED, RAW, UNKNOWN),
        (CONSTRAINED, RAW, UNKNOWN),
        (Draw(), UNKNOWN, UNKNOWN),
        (Draw(temperature=0.0), UNKNOWN, UNKNOWN),
        (PENALISED, UNKNOWN, UNKNOWN),
    ],
)
def test_numbers_hold_penalties_bias_and_grammar_but_never_filters(draw, of_server, mode):
    assert logprobs_mode(draw, of_server) is mode


@pytest.mark.parametrize(
    ("prompt_length", "repeated", "interval"),
    [(0, 0, 1), (999, 0, 1), (20_000, 0, 20), (10, 4096, 16), (20_000, 4096, 20), (2_000, 8192, 32)],
)
def test_an_event_costs_no_more_than_its_tokens(prompt_length, repeated, interval):
    assert stream_interval(prompt_length, repeated) == interval


def test_more_stop_strings_than_the_server_takes_are_left_to_us():
    draw = Draw(stop=tuple(f"stop {number}" for number in range(STOP_STRINGS + 3)))
    assert sampling_of(draw, 0, 1).stop == draw.stop[:STOP_STRINGS]


def test_what_a_draw_leaves_open_is_said_in_the_servers_neutral_words():
    neutral = sampling_of(Draw(), 0, 1)
    assert (neutral.max_new_tokens, neutral.top_k, neutral.top_p, neutral.min_p) == (None, -1, 1.0, 0.0)
    assert (neutral.stop, neutral.stop_token_ids, neutral.logit_bias) == (None, None, None)


def test_images_are_data_urls_so_that_none_is_taken_for_a_path():
    assert image_data((Media("sha", "image/webp", b"/etc/passwd"),)) == ("data:image/webp;base64,L2V0Yy9wYXNzd2Q=",)


def test_a_body_is_json_with_the_ids_as_they_were_written():
    body = written(b"1,2", Request("rid", sampling_of(Draw(), 7, 1), 0))
    assert body.startswith(b'{"input_ids":[1,2],"rid":"rid","sampling_params":{"max_new_tokens":null,')
    assert b"image_data" not in body
