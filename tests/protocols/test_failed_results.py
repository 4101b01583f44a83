from __future__ import annotations

import pytest

from turnstile.conversation import Image, Text
from turnstile.protocols.failed_results import marked

IMAGE = Image("0" * 64, "image/png")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ((Text("no such file"),), (Text("Error: no such file"),)),
        ((Text("no"), Text("way")), (Text("Error: no"), Text("way"))),
        ((Text(" ERROR 7"),), (Text(" ERROR 7"),)),
        ((Text("<tool_use_error>x"),), (Text("<tool_use_error>x"),)),
        ((), (Text("Error:"),)),
        ((IMAGE,), (Text("Error:"), IMAGE)),
    ],
)
def test_a_failed_result_says_so_once(said, shown):
    assert marked(said) == shown
