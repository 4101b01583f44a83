"""Whether the engine reads text as our tokenizer does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from turnstile.conversation import Message, Role
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


class Telling(Reading):
    """An engine that knows ids only, and says which tokenizer they are of."""

    def __init__(self, tokenizer_sha256: str) -> None:
        super().__init__(lambda text: None)
        self.tokenizer_sha256 = tokenizer_sha256


async def test_an_engine_of_ids_is_compared_by_its_tokenizers_hash(served: Any) -> None:
    assert await check_parity(Telling(served.tokenizer.sha256), served, NOW) == ""
    with pytest.raises(CallerError, match=f"sha256 {'ab' * 32}, --tokenizer has {served.tokenizer.sha256}") as refused:
        await check_parity(Telling("ab" * 32), served, NOW)
    assert (refused.value.code, "start the engine with this one" in refused.value.remedy) == ("tokenizer_parity", True)


class Chatting(Reading):
    """An engine that has a chat template of its own too."""

    def __init__(self, rule: Callable[[str], IdRun | None], prompt_T: IdRun | None) -> None:
        super().__init__(rule)
        self._prompt_T = prompt_T

    async def chat_ids(self, messages: tuple[Message, ...]) -> IdRun | None:
        assert [message.role for message in messages] == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.USER]
        return self._prompt_T


async def test_case_a2_an_engine_whose_chat_route_makes_another_prompt_is_told_of_with_its_place(served: Any) -> None:
    told: list[str] = []

    def remembered(text: str) -> IdRun:
        told.append(text)
        return served.tokenizer.encode(text)

    assert await check_parity(Chatting(remembered, None), served, NOW) == ""
    ours_T = served.tokenizer.encode(told[0])
    assert await check_parity(Chatting(remembered, ours_T), served, NOW) == ""
    notice = await check_parity(Chatting(remembered, IdRun.of([151643]) + ours_T), served, NOW)
    assert "at index 0 it has [151643, 151644, 8948, 198], we have [151644, 8948, 198, 3430]" in notice


async def test_an_engine_that_cannot_be_asked_is_told_to_the_operator(served: Any) -> None:
    assert "was not checked" in await check_parity(Reading(lambda _: None), served, NOW)
