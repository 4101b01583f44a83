"""Where a body is read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from turnstile.errors import CallerError
from turnstile.protocols import DIALECTS
from turnstile.server.apart import LARGE_BYTES, apart


async def test_a_large_body_is_read_in_a_thread_and_a_small_one_at_once() -> None:
    here = threading.get_ident()
    small, large = [await apart(bytes(length), threading.get_ident) for length in (LARGE_BYTES - 1, LARGE_BYTES)]
    assert (small == here, large == here) == (True, False)


async def test_what_is_wrong_with_a_large_body_is_raised_where_it_was_asked_for() -> None:
    def read() -> None:
        raise CallerError("It is no JSON", "Send JSON")

    with pytest.raises(CallerError, match="It is no JSON"):
        await apart(bytes(LARGE_BYTES), read)


@pytest.mark.parametrize("dialect", [each.name for each in DIALECTS])
def test_a_large_request_is_answered_or_refused_as_a_small_one_is(
    wired: Callable[..., Any], speaking: Any, dialect: str
) -> None:
    room = wired()
    room.fake.answer = lambda _: room.ids("A<|im_end|>")
    it = speaking.Talker(room, speaking.SPEAKERS[dialect], room.agent())
    body = it.speaker.body("go ")
    large = body[:-1] + b" " * LARGE_BYTES + b"}"
    answered = it.send(large, False)
    assert (answered.status, it.speaker.heard(answered.body, False).text) == (200, "A")
    refused = it.send(large[:-1], False)
    assert refused.status == 400
    assert it.speaker.is_refusal(refused.body)
