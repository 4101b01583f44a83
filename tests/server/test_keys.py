"""Which key opens what."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from turnstile.errors import CallerError
from turnstile.server.keys import (
    Keys,
    agent_headers,
    check_keys,
    keys_in,
    mint_agent_key,
    named_rollout,
    presented_key,
    rollout_named_by,
    wrong_agent_key,
)


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({"authorization": "Bearer k"}, "k"),
        ({"authorization": "bearer  k "}, "k"),
        ({"x-api-key": "k"}, "k"),
        ({"x-goog-api-key": "k"}, "k"),
        ({"authorization": "Bearer ", "x-api-key": "k"}, "k"),
        ({"authorization": "Basic k"}, ""),
        ({}, ""),
    ],
)
def test_a_key_is_found_where_the_dialects_clients_put_it(headers: dict[str, str], key: str) -> None:
    assert presented_key(headers) == key


@pytest.mark.parametrize("name", ["r", "ro-1", "a_b", "a_b_c", "ts_x", "x" * 128])
def test_a_minted_key_names_its_rollout_and_no_two_are_equal(name: str) -> None:
    first, second = mint_agent_key(name), mint_agent_key(name)
    assert rollout_named_by(first) == name
    assert first != second


@pytest.mark.parametrize(
    ("key", "name"), [("ts_r_secret", "r"), ("ts_a_b_", "a_b"), ("sk-123", ""), ("", ""), ("ts_", "")]
)
def test_a_key_of_another_form_names_what_it_can(key: str, name: str) -> None:
    assert rollout_named_by(key) == name


def test_an_agents_key_may_stand_in_the_address() -> None:
    def of(query: bytes, *headers: tuple[bytes, bytes]) -> str:
        scope = {"type": "http", "query_string": query, "headers": list(headers)}
        return presented_key(agent_headers(Request(scope)))

    assert of(b"key=ts_r_x&alt=sse") == "ts_r_x"
    assert of(b"alt=sse", (b"x-goog-api-key", b"k")) == "k"
    assert of(b"", (b"authorization", b"Bearer b")) == "b"


@pytest.mark.parametrize(
    "sent", [{}, {"authorization": "Bearer "}, {"authorization": "Bearer wrong"}, {"x-api-key": "ä"}]
)
def test_only_the_operators_key_opens_what_operators_do(sent: dict[str, str]) -> None:
    keys = Keys("right")
    keys.check_operator({"authorization": "Bearer right"})
    with pytest.raises(CallerError) as refused:
        keys.check_operator(sent)
    assert (refused.value.status, refused.value.code) == (401, "unauthorized")


def test_without_an_operators_key_nothing_is_asked_for() -> None:
    keys = Keys("")
    assert keys.required is False
    keys.check_operator({})
    keys.check_reader({})
    assert keys.may_read({})


def test_a_readers_key_opens_what_changes_nothing_and_no_more() -> None:
    keys = Keys("right", "look")
    keys.check_reader({"authorization": "Bearer look"})
    keys.check_reader({"authorization": "Bearer right"})
    assert (keys.may_read({"x-api-key": "look"}), keys.may_read({})) == (True, False)
    for check, sent in ((keys.check_operator, "look"), (keys.check_reader, "wrong"), (keys.check_reader, "")):
        with pytest.raises(CallerError) as refused:
            check({"authorization": f"Bearer {sent}"})
        assert (refused.value.status, refused.value.code) == (401, "unauthorized")


def test_several_keys_open_at_once_so_that_one_can_take_anothers_place() -> None:
    assert keys_in(" new, old ,") == ("new", "old")
    keys = Keys("new,old", "look,see")
    for key in ("new", "old"):
        keys.check_operator({"authorization": f"Bearer {key}"})
    for key in ("new", "old", "look", "see"):
        keys.check_reader({"authorization": f"Bearer {key}"})
    for key in ("new,old", "", ",", "ne"):
        with pytest.raises(CallerError):
            keys.check_operator({"authorization": f"Bearer {key}"})


def test_no_key_is_held_but_by_its_hash() -> None:
    held = repr(vars(Keys("planted-admin", "planted-reader")))
    assert "planted" not in held


@pytest.mark.parametrize(
    ("admin", "read", "param", "said"),
    [
        (" , ", "", "admin_key", "no key that a header can carry"),
        ("a b", "", "admin_key", "no key that a header can carry"),
        ("schlüssel", "", "admin_key", "no key that a header can carry"),
        ("a" * 32, "\n", "read_key", "no key that a header can carry"),
        ("", "r" * 32, "read_key", "guards nothing"),
        ("a" * 32, f"{'a' * 32},x", "read_key", "is an admin key too"),
    ],
)
def test_keys_that_guard_nothing_are_refused_at_start_and_never_shown(
    admin: str, read: str, param: str, said: str
) -> None:
    with pytest.raises(CallerError, match=said) as refused:
        check_keys(admin, read)
    assert (refused.value.code, refused.value.param) == ("key_unusable", param)
    assert "aaa" not in str(refused.value)
    assert "rrr" not in str(refused.value)


def test_keys_that_can_be_guessed_are_told_at_start() -> None:
    assert check_keys("", "") == ()
    assert check_keys("a" * 16, "r" * 16) == ()
    assert check_keys("a" * 16 + ",short", "r" * 15) == (
        "The admin key has fewer than 16 characters: it can be guessed",
        "The read key has fewer than 16 characters: it can be guessed",
    )


def test_the_answer_to_a_wrong_key_does_not_say_whether_the_rollout_exists() -> None:
    assert str(wrong_agent_key()) == str(wrong_agent_key())
    assert "exist" not in str(wrong_agent_key())


@pytest.mark.parametrize(
    ("path", "key", "named"),
    [
        ("/r/a/v1/messages", "ts_b_x", "a"),
        ("/r/a", "", "a"),
        ("/v1/messages", "ts_b_x", "b"),
        ("/v1/messages", "sk-1", ""),
        ("/r/a\r\nx-evil: 1/v1/messages", "", ""),
        ("/rollouts/a", "", ""),
    ],
)
def test_a_request_names_its_rollout_by_its_address_before_its_key(path: str, key: str, named: str) -> None:
    headers = [(b"x-api-key", key.encode())]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    assert named_rollout(Request({**scope, "server": ("h", 80), "scheme": "http"})) == named
