"""Valid bodies with something in them changed, in every dialect: no 500, and each refusal in shape and recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.protocols import DIALECTS

DIALECT = pytest.mark.parametrize("dialect", [dialect.name for dialect in DIALECTS])
FEW = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["m", "ls", "user"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)
CHANGES = st.lists(
    st.tuples(st.integers(0, 10**6), st.none() | ODD.map(lambda value: (value,))), min_size=1, max_size=2
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every member and element of a JSON value: what holds it, and under which name or index."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for name, inner in list(inside) for place in ((value, name), *places(inner))]


def changed(body: bytes, changes: list[tuple[int, tuple[Any] | None]]) -> bytes:
    """A body with some places of it taken out (None) or put another value into."""
    whole = json.loads(body)
    for at, put in changes:
        if found := places(whole):
            holder, name = found[at % len(found)]
            if put is None:
                del holder[name]
            else:
                holder[name] = put[0]
    return json.dumps(whole).encode()


@DIALECT
@FEW
@given(changes=CHANGES, stream=st.booleans())
def test_a_changed_body_is_answered_or_refused_in_shape_and_the_journal_says_why(
    wired: Callable[..., Any], speaking: Any, dialect: str, changes: Any, stream: bool
) -> None:
    room = wired("qwen3")
    it = speaking.Talker(room, speaking.SPEAKERS[dialect], room.agent())
    called = speaking.Called("call_1", "ls", {"p": "/a"})
    body = it.speaker.body("go", "on", speaking.Result(called, "b"), stream=stream)
    told = it.send(changed(body, changes), stream)
    forest = room.forest(it.agent)
    assert told.status in (200, 400, 404, 413, 422), told.body
    if told.status == 200:
        assert [state.committed is not None for state in forest.calls.values()] == [True]
        assert not told.is_broken
    else:
        assert it.speaker.is_refusal(told.body), told.body
        assert told.prompts == 0
        failures = [*forest.refused, *(state.failed for state in forest.calls.values())]
        assert [failed.status for failed in failures] == [told.status]
