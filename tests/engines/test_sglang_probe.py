from __future__ import annotations

import json
import math

import pytest

from turnstile.engines.sglang_probe import Findings, probe
from turnstile.engines.sglang_shapes import Event, FinishReason, LogprobEntry, MetaInfo
from turnstile.errors import EngineError
from turnstile.generation import LogprobsMode


class Told:
    """Answers the probe from logits, a temperature inside the numbers and a few habits."""

    def __init__(self, logit=lambda token: token / 7, inside=lambda temperature: temperature, noise=0.0):
        self.logit = logit
        self.inside = inside
        self.noise = noise
        self.stop = FinishReason("stop", 40)
        self.stopped = [40]
        self.echo = True
        self.bodies = []

    async def __call__(self, body):
        asked = json.loads(body)
        self.bodies.append(asked)
        sampling = asked["sampling_params"]
        if sampling["stop_token_ids"]:
            return Event(self.stopped, MetaInfo("rid", self.stop, 8, 1))
        scale = self.inside(sampling["temperature"])
        rows = [LogprobEntry(self.logit(token) / scale - 9 + self.noise, token) for token in asked["token_ids_logprob"]]
        top = [[LogprobEntry(-0.1, 40)]] if asked["top_logprobs_num"] else None
        meta = MetaInfo("rid", FinishReason("length"), 8, 1, output_top_logprobs=top, output_token_ids_logprobs=[rows])
        return Event([40], meta, asked["input_ids"] if self.echo else None)


def rid():
    return "r"


@pytest.mark.parametrize(
    ("inside", "mode"),
    [
        (lambda temperature: temperature, LogprobsMode.TEMPERATURE),
        (lambda _temperature: 1.0, LogprobsMode.RAW),
        (lambda temperature: temperature**2, LogprobsMode.UNKNOWN),
    ],
)
async def test_the_temperature_inside_the_numbers_is_measured_by_their_differences(inside, mode):
    told = Told(inside=inside)
    assert await probe(told, rid) == Findings(mode, True)
    assert [body["stream"] for body in told.bodies] == [False] * 3
    assert [body["sampling_params"]["temperature"] for body in told.bodies] == [1.0, 2.0, 0.0]
    assert [body["sampling_params"]["max_new_tokens"] for body in told.bodies] == [1, 1, 2]


@pytest.mark.parametrize("logit", [lambda _token: 0.0, lambda token: token / 1000, lambda _token: math.nan])
async def test_what_is_too_flat_to_measure_is_unknown(logit):
    assert (await probe(Told(logit), rid)).mode is LogprobsMode.UNKNOWN


async def test_a_server_that_echoes_no_ids_is_seen():
    told = Told()
    told.echo = False
    assert await probe(told, rid) == Findings(LogprobsMode.TEMPERATURE, False)


async def test_a_stop_id_that_is_left_out_is_refused():
    told = Told()
    told.stopped = []
    with pytest.raises(EngineError, match="the stop id 40 ended an answer and is not in its `output_ids`"):
        await probe(told, rid)


async def test_a_likeliest_id_that_is_not_sampled_again_proves_nothing():
    told = Told()
    told.stop, told.stopped = FinishReason("length"), [41, 42]
    assert await probe(told, rid) == Findings(LogprobsMode.TEMPERATURE, True)


async def test_numbers_that_were_asked_for_and_are_missing_are_refused():
    async def without(body):
        answer = await Told()(body)
        meta = MetaInfo("rid", FinishReason("length"), 8, 1)
        return Event(answer.output_ids, meta, answer.prompt_token_ids)

    with pytest.raises(EngineError, match=r"`meta_info\.output_top_logprobs` is empty"):
        await probe(without, rid)
