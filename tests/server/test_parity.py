"""Whether the engine reads text as our tokenizer does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from turnstile.errors import CallerError
from turnstile.server.parity import check_parity
from turnstile.templates.facts import serve
from turnstile.tokens import IdRun

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Reading:
    """An engine's `tokenize`, by any rule."""

    def __init__(self, rule: Callable[[str], IdRun | None]) -> None:
        self._rule = rule

    async def tokenize(self, text: str) -> IdRun | None:
        return self._rule(text)


@pytest.fixture
def served(family_files: Any) -> Any:
    return serve(family_files("qwen3"), model="m")


async def test_an_engine_that_reads_text_alike_needs_no_notice(served: Any) -> None:
    assert await check_parity(Reading(served.tokenizer.encode), served, NOW) == ""


async def test_case_a2_a_second_bos_is_found_at_start_with_its_place(served: Any) -> None:
    with pytest.raises(CallerError, match="at index 0 it has") as refused:
        await check_parity(Reading(lambda text: IdRun.of([151643]) + served.tokenizer.encode(text)), served, NOW)
    assert refused.value.code == "tokenizer_parity"


async def test_another_models_tokenizer_is_refused(served: Any, family_files: Any) -> None:
    other = serve(family_files("llama3.1"), model="m").tokenizer
    with pytest.raises(CallerError, match="Give the folder of the very model"):
        await check_parity(Reading(other.encode), served, NOW)


async def test_an_engine_that_cannot_be_asked_is_told_to_the_operator(served: Any) -> None:
    assert "was not checked" in await check_parity(Reading(lambda _: None), served, NOW)
