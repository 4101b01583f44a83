"""What vLLM's doors have in common."""

from __future__ import annotations

import math

import msgspec
import pytest

from turnstile.engines.vllm_door import Ask, Structured, event_of, natural_log, sampling, structured, token_id_of
from turnstile.errors import CallerError, EngineError
from turnstile.generation import Draw, Free, GrammarConstraint, SchemaConstraint


class Event(msgspec.Struct):
    """Any."""

    a: int


@pytest.fixture
def asked(prompt):
    def _asked(draw, context=100):
        return Ask(prompt([2, 3]), b"2,3", draw, seed=5, model="m", context_length=context)

    return _asked


def test_choices_have_seeds_of_their_own_as_vllm_gives_them_for_n(asked):
    seeds = [sampling(asked(Draw(choice=choice)), msgspec.UNSET).seed for choice in range(3)]
    assert seeds == [5, 6, 7]


@pytest.mark.parametrize(
    ("wanted", "context", "room"), [(None, 100, 98), (10, 100, 10), (200, 100, 98), (None, 2, 1), (None, None, 1 << 20)]
)
def test_no_more_is_asked_for_than_there_is_room_for_and_never_nothing(asked, wanted, context, room):
    assert asked(Draw(max_tokens=wanted), context).room == room


def test_an_empty_stop_string_is_not_sent(asked):
    assert sampling(asked(Draw(stop=("", "a"))), msgspec.UNSET).stop == ("a",)


def test_a_constraint_has_its_own_name():
    assert structured(Free()) is msgspec.UNSET
    assert structured(GrammarConstraint("g")) == Structured(grammar="g")
    assert msgspec.json.encode(structured(SchemaConstraint('{"type":"object"}'))) == b'{"json":{"type":"object"}}'


@pytest.mark.parametrize("token", ["198", "token_id:", "token_id:-1", "token_id:\u0661", "Hello"])
def test_a_token_that_is_no_id_is_refused(token):
    with pytest.raises(EngineError, match="ids were asked for"):
        token_id_of(token)


def test_an_id_is_read():
    assert token_id_of("token_id:198") == 198


@pytest.mark.parametrize(
    ("value", "number"),
    [(-0.5, -0.5), (0.0005, 0.0), (-9999.0, None), (-9500.0, None), (-math.inf, None), (None, None)],
)
def test_what_stands_for_no_finite_number_is_none(value, number):
    assert natural_log(value) == number


def test_a_number_above_0_is_no_log_probability():
    with pytest.raises(EngineError, match=r"a log-probability is 2\.5"):
        natural_log(2.5)


def test_an_error_in_place_of_an_event_is_raised():
    assert event_of(b'{"a":1}', Event).a == 1
    with pytest.raises(CallerError, match="context"):
        event_of(b'{"error": {"message": "exceeds model\'s maximum context length", "code": 400}}', Event)
    with pytest.raises(EngineError, match="status 500: died"):
        event_of(b'{"error":{"message":"died"}}', Event)
