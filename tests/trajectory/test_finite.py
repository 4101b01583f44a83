from __future__ import annotations

import json
import math

import msgspec
import pytest

from turnstile.errors import CallerError
from turnstile.trajectory.finite import non_finite, refuse_non_finite
from turnstile.trajectory.format import decode_line
from turnstile.trajectory.shapes import Float32Run


@pytest.fixture
def rollout(example):
    return decode_line(json.dumps(example).encode())


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"reward": math.nan}, "reward"),
        ({"rewards": {"tests": math.inf}}, "rewards.tests"),
        ({"metrics": {"a": 1.0, "b": -math.inf}}, "metrics.b"),
        ({"extra": {"a.b": [{"c": math.nan}]}}, "extra.a.b[0].c"),
    ],
)
def test_a_number_that_is_not_finite_is_named_by_its_place(rollout, change, where):
    assert list(non_finite(msgspec.structs.replace(rollout, **change))) == [where]


def test_settings_calls_and_weights_are_looked_at_too(rollout):
    setting = msgspec.structs.replace(rollout.samplings[0], top_p=math.nan)
    call = msgspec.structs.replace(rollout.calls[0], logprobs_temperature=math.inf)
    segments = rollout.sequences[0].segments
    heavy = msgspec.structs.replace(segments[2], weight=math.inf)
    first = msgspec.structs.replace(rollout.sequences[0], segments=(*segments[:2], heavy, *segments[3:]))
    bad = msgspec.structs.replace(
        rollout, samplings=(setting,), calls=(call, *rollout.calls[1:]), sequences=(first, rollout.sequences[1])
    )
    assert list(non_finite(bad)) == [
        "samplings[0].top_p",
        "calls[0].logprobs_temperature",
        "sequences[0].segments.weight",
    ]


def test_runs_are_refused_when_they_are_to_be_written(rollout):
    refuse_non_finite(rollout)
    first = msgspec.structs.replace(rollout.sequences[0], advantages=Float32Run.of([0.0] * 6 + [math.inf]))
    bad = msgspec.structs.replace(rollout, sequences=(first,))
    assert list(non_finite(bad)) == []
    with pytest.raises(CallerError, match=r"sequences\[0\].advantages of rollout ro-0001 is not finite"):
        refuse_non_finite(bad)
