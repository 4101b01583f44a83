"""An answer that breaks off as it should is no error of the web server; everything else is still logged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from turnstile.server.severing import StreamSevered, unlogged

LOG = logging.getLogger("uvicorn.error")


def test_a_stream_that_is_cut_off_on_purpose_leaves_no_word_in_the_servers_log(
    wired: Callable[..., Any], speaking: Any, fakes: Any, caplog: pytest.LogCaptureFixture
) -> None:
    room = wired()
    it = speaking.Talker(room, speaking.SPEAKERS["google.gemini"], room.agent())
    speaking.broken_behind(room, fakes, room.ids("One two three four five six seven eight nine ten.<|im_end|>"), 2)
    told = it.say("go")
    assert (told.status, told.is_broken) == (200, True)
    assert [record.getMessage() for record in caplog.records if record.name == LOG.name] == []


def test_another_error_of_an_application_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    before = list(LOG.filters)
    with unlogged():
        for error in (StreamSevered(), ZeroDivisionError()):
            LOG.error("Exception in ASGI application\n", exc_info=error)
        LOG.error("ASGI callable returned without completing response.")
    assert [(record.exc_info or (None,))[0] for record in caplog.records] == [ZeroDivisionError, None]
    assert LOG.filters == before
