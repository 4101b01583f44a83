"""Public case A2 on a real engine: the tokenizer of another model is refused at start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from turnstile.client import Client
from turnstile.errors import CallerError

pytestmark = pytest.mark.engine


def test_case_a2_a_server_does_not_start_with_the_tokenizer_of_another_model(
    start: Callable[..., Client], family: Callable[[str], Path]
) -> None:
    with pytest.raises(CallerError, match="The engine tokenizes otherwise than --tokenizer") as refused:
        start(tokenizer=family("qwen3"))
    assert refused.value.code == "tokenizer_parity"
