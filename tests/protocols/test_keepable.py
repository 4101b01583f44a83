"""What a trajectory cannot hold is refused before its call begins."""

from __future__ import annotations

import orjson
import pytest

from turnstile.errors import CallerError
from turnstile.protocols.keepable import MAX_NESTING, check_json


def nested(levels: int) -> str:
    return '{"a":[' * (levels // 2) + "1" + "]}" * (levels // 2)


@pytest.mark.parametrize(
    "written", ["{}", '{"maximum": 123456789012345678901234567890}', nested(MAX_NESTING), f"[{'[],' * 5000}[]]"]
)
def test_what_can_be_written_again_with_room_around_it_passes(written: str) -> None:
    check_json(written, "tools[0]")
    orjson.dumps([[[[[[[[orjson.loads(written)]]]]]]]])


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ('{"maximum": 1e400}', "`tools[0]` cannot be kept: number is infinity when parsed as double"),
        (nested(MAX_NESTING + 2), "`tools[0]` is nested more than 200 levels deep"),
        (nested(800), "`tools[0]` is nested more than 200 levels deep"),
    ],
)
def test_what_cannot_is_refused_by_its_field(written: str, problem: str) -> None:
    with pytest.raises(CallerError, match=r".") as refused:
        check_json(written, "tools[0]")
    assert refused.value.problem.startswith(problem)
    assert (refused.value.code, refused.value.param) == ("invalid_value", "tools[0]")


def test_fewer_levels_may_be_asked_for() -> None:
    check_json(nested(10), "tools[0]", 10)
    with pytest.raises(CallerError, match="`tools\\[0\\]` is nested more than 10 levels deep"):
        check_json(nested(12), "tools[0]", 10)
