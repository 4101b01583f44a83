"""What comes over a connection that is no request, or not yet."""

from __future__ import annotations

import functools
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from turnstile.server import http_edge

HEAD = b"POST /r/edge/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
BODY = b'{"model":"m","messages":[{"role":"user","content":"go"}]}'


@pytest.fixture
def room(wired: Callable[..., Any]) -> Any:
    return wired()


@pytest.fixture
def hasty(wire_up: Callable[..., Any], tools_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server that waits for next to no time."""
    monkeypatch.setattr(http_edge, "HEAD_PATIENCE_S", 0.3)
    monkeypatch.setattr("turnstile.server.agents.BODY_PATIENCE_S", 0.3)
    with wire_up(tools_folder, ["<|im_end|>"]) as room:
        yield room


def told(room: Any, *pieces: bytes) -> bytes:
    """All that comes back until the server closes; what it no longer reads is not sent."""
    url = urlsplit(room.client.url)
    heard = b""
    with socket.create_connection((url.hostname, url.port), timeout=60) as line:
        try:
            for piece in pieces:
                line.sendall(piece)
            while piece := line.recv(65536):
                heard += piece
        except ConnectionError:
            pass
    return heard


def error_of(answer: bytes) -> tuple[int, str, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    error = json.loads(body)["error"]
    return int(head.split()[1]), error["code"], error["message"]


TOO_LONG = (
    431,
    "head_too_large",
    "The head of the request is longer than 65536 bytes. "
    "Send fewer and shorter headers; what is long belongs into the body.",
)


@pytest.mark.parametrize(
    "pieces",
    [
        (HEAD + b"x: " + b"a" * 70_000 + b"\r\n\r\n",),
        (HEAD + b"x: ", *[b"a" * 8_000] * 20),
        (HEAD, *[b"x%d: a\r\n" % at for at in range(9_000)]),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n1;", *[b"a" * 8_000] * 20),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: ", *[b"a" * 8_000] * 20),
    ],
    ids=["whole", "without end", "many headers", "path", "chunk extension", "trailer"],
)
def test_a_head_or_a_frame_that_is_too_long_is_refused(room: Any, pieces: tuple[bytes, ...]) -> None:
    # A reset may overtake the answer, where the client still sends; it is refused all the same.
    answer = told(room, *pieces)
    assert not answer or error_of(answer) == TOO_LONG
    assert room.http.get(f"{room.client.url}/healthz").status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST / HTTP/1.1\r\nhost : a\r\n\r\n",
        HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
        HEAD + b"content-length: -1\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /\xff HTTP/1.1\r\nhost: a\r\n\r\n",
    ],
    ids=["TLS", "space in a name", "both lengths", "two lengths", "negative length", "no chunk", "path is no ASCII"],
)
def test_what_is_no_http_is_answered_and_closed(room: Any, sent: bytes) -> None:
    assert error_of(told(room, sent)) == (
        400, "invalid_http", "The request is no valid HTTP. Send HTTP/1.1, with either a length or chunks.",
    )  # fmt: skip


def test_garbage_behind_a_request_never_takes_the_place_of_its_answer(room: Any) -> None:
    room.script("A<|im_end|>")
    # Its answer may not arrive, and would be given to the next who asks the same in its rollout.
    head = HEAD.replace(b"/edge/", b"/garbage/")
    answer = told(room, head + b"content-length: %d\r\n\r\n" % len(BODY) + BODY + b"\x00garbage\r\n\r\n")
    assert not answer or answer.startswith(b"HTTP/1.1 200")
    room.fake.forget()


def test_requests_that_come_in_one_piece_are_answered_in_their_order(room: Any) -> None:
    look = b"GET /r/edge/v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"
    lost = b"GET /nothing HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    answer = told(room, look + look + lost)
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"404"]


def test_a_client_that_sent_several_requests_at_once_and_left_is_missed(room: Any, wires: Any) -> None:
    room.fake.answer = lambda _: room.ids("A<|im_end|>")
    room.fake.held, began = True, room.fake.begun
    url = urlsplit(room.client.url)
    whole = HEAD.replace(b"/edge/", b"/left/") + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    with socket.create_connection((url.hostname, url.port), timeout=60) as line:
        line.sendall(whole + b"GET /r/left/v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
        wires.eventually(lambda: room.fake.begun > began)
    forest = functools.partial(wires.forest, room.store, "left")
    wires.eventually(lambda: [each for each in forest().calls.values() if each.failed is not None])
    room.fake.held = False
    (call,) = forest().calls.values()
    assert call.failed.reason == "client_gone"


def test_a_body_in_chunks_of_one_byte_is_read(room: Any) -> None:
    room.script("A<|im_end|>")
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY)
    answer = told(room, HEAD + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


def test_a_head_that_is_never_ended_is_given_up(hasty: Any) -> None:
    assert error_of(told(hasty, HEAD)) == (
        408, "request_too_slow", "The head of the request did not come within 0.3 s. Send it again.",
    )  # fmt: skip


def test_a_connection_on_which_nothing_is_asked_is_closed(hasty: Any) -> None:
    assert told(hasty) == b""


def test_a_body_that_is_never_ended_is_given_up(hasty: Any) -> None:
    url = urlsplit(hasty.client.url)
    with socket.create_connection((url.hostname, url.port), timeout=60) as line:
        line.sendall(HEAD + b"content-length: 9\r\n\r\nabc")
        answer = b""
        while not answer.endswith(b"\r\n0\r\n\r\n"):
            answer += line.recv(65536)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"Nothing of the request came for 0.3 s, after 3 bytes" in answer
