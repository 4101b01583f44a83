"""A key goes to the engine that it was listed for, and to no other."""

from __future__ import annotations

import pytest

from turnstile.errors import CallerError
from turnstile.server.engine_keys import EngineKeys

NAMES = ("10.0.0.1:8000", "[fd00::2]:9/a")


def test_an_engine_is_sent_its_own_key_else_the_one_for_all() -> None:
    keys = EngineKeys.read("all", "[fd00::2]:9/a=own==, ", NAMES)
    assert [keys.of(name) for name in NAMES] == ["all", "own=="]


def test_an_engine_without_a_key_is_sent_none() -> None:
    keys = EngineKeys.read("", "10.0.0.1:8000=own", NAMES)
    assert [keys.of(name) for name in NAMES] == ["own", ""]


def test_in_whatever_order_engines_stand_each_has_its_key() -> None:
    listed = "10.0.0.1:8000=one,[fd00::2]:9/a=two"
    for names in (NAMES, NAMES[::-1]):
        keys = EngineKeys.read("", listed, names)
        assert {name: keys.of(name) for name in names} == {NAMES[0]: "one", NAMES[1]: "two"}


@pytest.mark.parametrize(
    ("for_all", "listed", "said"),
    [
        ("", "10.0.0.9:8000=planted", "for no engine that is served"),
        ("", "planted", "for no engine that is served"),
        ("", "=planted", "for no engine that is served"),
        ("", "10.0.0.1:8000=planted,10.0.0.1:8000=planted2", "twice"),
        ("", "10.0.0.1:8000=", "no header can carry"),
        ("", "10.0.0.1:8000=planted key", "no header can carry"),
        ("planted\r\nx: y", "", "no header can carry"),
        ("plänted", "", "no header can carry"),
    ],
)
def test_a_key_that_has_no_engine_or_fits_no_header_is_refused_and_not_shown(
    for_all: str, listed: str, said: str
) -> None:
    with pytest.raises(CallerError, match=said) as refused:
        EngineKeys.read(for_all, listed, NAMES)
    assert refused.value.code == "key_unusable"
    assert "planted" not in str(refused.value)
