"""Which requests may come from a web page, told by what browsers say of themselves."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from turnstile.errors import CallerError
from turnstile.server.origins import Doorkeeper, allowed_hosts, stranger

NOBODY: frozenset[str] = frozenset()


def asked(method: str = "POST", *, allowed: frozenset[str] = NOBODY, **headers: str) -> str:
    """The code of the refusal; empty if there is none. Underscores of names stand for dashes."""
    raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    error = stranger(method, Headers(raw=raw), allowed)
    assert error is None or error.status == 403
    return error.code if error else ""


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:7000", "127.0.0.1", "127.8.9.10:80", "localhost:7000", "LOCALHOST", "localhost.", "[::1]:7000",
        "[::1]", "run-1.localhost:7000",
    ],
)  # fmt: skip
def test_loopbacks_names_are_served_on_any_port(host: str) -> None:
    assert asked(host=host) == ""


@pytest.mark.parametrize(
    "host",
    [
        "evil.test:7000", "127.0.0.1.evil.test", "localhost.evil.test", "localhostevil", "evil-localhost",
        "10.0.0.1:7000", "0.0.0.0:7000", "2130706433", "127.1", "0x7f.0.0.1", "[::ffff:127.0.0.1]", "[::2]", "::1",
        "localhost@evil.test", "evil.test@localhost", "localhost:7000:1", "localhost/evil", "", ":", "local host",
        "localhost,evil.test", "lo\xadcalhost", "localhost:port", "host.docker.internal",
    ],
)  # fmt: skip
def test_any_other_name_is_refused_as_a_page_whose_name_was_made_to_lead_here_would_send_it(host: str) -> None:
    assert asked(host=host) == "host_not_allowed"
    assert asked("GET", host=host) == "host_not_allowed"


def test_of_two_names_both_have_to_be_loopbacks() -> None:
    raw = [(b"host", b"localhost"), (b"host", b"evil.test")]
    for order in (raw, raw[::-1]):
        error = stranger("GET", Headers(raw=order), NOBODY)
        assert error is not None
        assert error.code == "host_not_allowed"


def test_a_request_without_a_name_is_no_browsers() -> None:
    assert asked() == ""


def test_a_name_that_was_allowed_is_served_on_any_port() -> None:
    allowed = allowed_hosts(("Host.Docker.Internal", " 10.0.0.7", "[fd00::7]"))
    assert allowed == {"host.docker.internal", "10.0.0.7", "fd00::7"}
    for host in ("host.docker.internal:7000", "10.0.0.7", "[FD00::7]:1"):
        assert asked(host=host, allowed=allowed) == ""
    assert asked(host="x.host.docker.internal", allowed=allowed) == "host_not_allowed"


@pytest.mark.parametrize("name", ["", "*", "*.test", "http://a.test", "a.test:7000", "a.test/x", "a b"])
def test_an_allowed_name_that_no_request_can_have_is_refused_at_start(name: str) -> None:
    with pytest.raises(CallerError) as refused:
        allowed_hosts((name,))
    assert (refused.value.code, refused.value.param) == ("invalid_value", "allow_hosts")


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.test", "null", "http://localhost:3000", "http://127.0.0.1", "http://localhost:70000", "file://",
        "chrome-extension://abc", "ftp://localhost:7000", "localhost:7000", "http://[", "", "http://localhost:7000/",
    ],
)  # fmt: skip
def test_a_page_of_another_origin_is_refused_also_one_of_this_machine(origin: str) -> None:
    expected = "" if origin == "http://localhost:7000/" else "origin_not_allowed"
    assert asked(host="localhost:7000", origin=origin) == expected


def test_our_own_page_is_served() -> None:
    for origin in ("http://localhost:7000", "HTTP://LOCALHOST:7000", "https://localhost:7000"):
        assert asked(host="localhost:7000", origin=origin, sec_fetch_site="same-origin") == ""


def test_of_two_origins_both_have_to_be_ours() -> None:
    raw = [(b"host", b"h.localhost"), (b"origin", b"http://h.localhost"), (b"origin", b"null")]
    error = stranger("GET", Headers(raw=raw), NOBODY)
    assert error is not None
    assert error.code == "origin_not_allowed"


@pytest.mark.parametrize(
    ("method", "site", "dest", "code"),
    [
        ("GET", "none", "document", ""),
        ("GET", "same-origin", "empty", ""),
        ("GET", "cross-site", "document", ""),
        ("POST", "cross-site", "document", "origin_not_allowed"),
        ("GET", "cross-site", "image", "origin_not_allowed"),
        ("GET", "same-site", "script", "origin_not_allowed"),
        ("GET", "cross-site", "iframe", "origin_not_allowed"),
        ("HEAD", "cross-site", "empty", "origin_not_allowed"),
    ],
)
def test_what_a_page_elsewhere_embeds_is_refused_and_a_link_that_is_followed_is_not(
    method: str, site: str, dest: str, code: str
) -> None:
    assert asked(method, host="localhost", sec_fetch_site=site, sec_fetch_dest=dest) == code


def test_what_nodes_fetch_says_of_itself_is_no_sign_of_a_browser() -> None:
    assert asked(host="127.0.0.1:7000", sec_fetch_mode="cors", accept_language="*", user_agent="node") == ""


async def test_the_doorkeeper_answers_for_the_application_and_lets_all_else_through() -> None:
    served: list[str] = []
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        served.append(scope["type"])

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, CallerError)
        return Response(error.code, error.status)

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read of a request that is refused")

    door = Doorkeeper(app, NOBODY, refuse)
    good = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
    await door(good, receive, send)
    await door({"type": "lifespan"}, receive, send)
    assert (served, sent) == (["http", "lifespan"], [])
    await door({**good, "headers": [(b"host", b"evil.test")]}, receive, send)
    assert served == ["http", "lifespan"]
    assert [(each.get("status"), each.get("body")) for each in sent] == [(403, None), (None, b"host_not_allowed")]
