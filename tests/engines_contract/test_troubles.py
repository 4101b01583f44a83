"""What every adapter does when its engine lies, breaks or is slow: no answer that cannot be true becomes a good turn.

The fakes speak each engine's real wire. A trouble that an engine's wire cannot express is left out for it.
"""

from __future__ import annotations

import asyncio
import gc
import socket
from typing import Any

import pytest

from turnstile.errors import EchoMismatch, EngineError
from turnstile.generation import Draw
from turnstile.reasons import NoteCode

TEXT = "Blue, green, red, gold, grey, pink, brown."
PATIENCE_S = 10.0

GONE = {"engine_unreachable", "engine_broken"}
BROKEN = {"engine_broken", "engine_refused"}
UNKNOWN = {"logprobs_missing", "engine_broken", "logprob_filled"}
"""llama.cpp's adapter asks again for numbers that did not come, and says so."""

OUTCOMES = {
    "RESET": {"engine_unreachable"},
    "CUT": GONE,
    "CUT_CLEAN": GONE,
    "ERROR_500": {"engine_refused"},
    "BUSY": {"engine_refused"},
    "ERROR_EVENT": BROKEN,
    "HTML": BROKEN | GONE,
    "NOT_JSON": BROKEN,
    "NO_STREAM": BROKEN | GONE,
    "OTHER_PROMPT": {"echo_mismatch"},
    "WRONG_COUNT": {"engine_broken", "ids_incomplete"},
    "NO_IDS": {"engine_broken", "echo_mismatch", "ids_incomplete"},
    "LOST_IDS": {"engine_broken", "ids_incomplete"},
    "FOREIGN_ID": {"engine_broken"},
    "POSITIVE": {"engine_broken"},
    "NAN_LITERAL": {"engine_broken"},
    "NO_LOGPROBS": UNKNOWN,
    "SHORT_LOGPROBS": UNKNOWN,
    "FOREIGN_LOGPROBS": UNKNOWN,
    "NULL_LOGPROBS": UNKNOWN,
    "CLAMPED": UNKNOWN,
    "ALL_ZERO": {"logprob_suspect:all_zero"},
    "STOP_ID_LOST": {"engine_broken", "stop_unknown", "ids_incomplete"},
    "UNKNOWN_FINISH": {"engine_broken", "upstream_truncated"},
    "ABORTED": {"upstream_truncated"},
    "NO_FINISH": GONE,
    "NAN_HAPPENED": {"engine_broken"},
    "CHANGED_IDS": {"engine_broken"},
    "GAP_IN_SPANS": {"engine_broken", "policy_spans_broken"},
}
"""What may come of a trouble: an error's code, why the turn is masked, or a note on it."""


async def outcome(subject: Any, draw: Draw | None = None) -> set[str]:
    """What came of one request: codes of errors, reasons to mask and notes; empty if it is a good turn."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            answered = await subject.ask(subject.vocabulary.spell("Q:"), draw)
    except EchoMismatch:
        return {"echo_mismatch"}
    except EngineError as problem:
        assert problem.remedy
        return {problem.code}
    notes = (*answered.generation.notes, *answered.verdict.notes)
    # The exchange looks whether spans tile the answer when it records them.
    spans = [(each.start_S, each.end_S) for each in answered.generation.policy_spans]
    begins = [start for start, _ in spans]
    if spans and (begins != [0, *(end for _, end in spans[:-1])] or spans[-1][1] != len(answered.ids)):
        return {NoteCode.POLICY_SPANS_BROKEN.value}
    return {each.value for each in answered.verdict.incomplete} | {note.code.value for note in notes}


@pytest.mark.parametrize("trouble", OUTCOMES)
async def test_trouble_never_becomes_a_good_turn(liar: Any, trouble: str) -> None:
    if not liar.can(trouble):
        pytest.skip(f"{liar.name} cannot go wrong like that")
    liar.says(TEXT)
    # The wire sends a request again that got no byte of an answer.
    liar.trouble(trouble, times=2 if trouble == "RESET" else liar.requests_an_answer)
    found = await outcome(liar)
    assert found & OUTCOMES[trouble], found
    liar.forget()
    liar.says(TEXT)
    assert await outcome(liar) == set(), "the next request suffers"


@pytest.mark.parametrize("trouble", ["CUT", "ERROR_EVENT"])
async def test_what_came_before_a_stream_broke_was_handed_on_and_no_more(liar: Any, trouble: str) -> None:
    if liar.name.startswith("llama.cpp"):
        pytest.skip("its adapter asks for short whole answers")
    ids = liar.says(TEXT)
    liar.trouble(trouble)
    seen: list[int] = []

    async def emit(delta: Any) -> None:
        seen.extend(delta.ids_S.tolist())

    with pytest.raises(EngineError):
        await liar.engine.generate(liar.prompt([4, 5]), Draw(stop_ids=frozenset({1})), emit)
    assert 0 < len(seen) < len(ids)
    assert seen == ids[: len(seen)]


async def test_a_slow_first_token_is_waited_for(liar: Any) -> None:
    liar.says(TEXT)
    liar.fake.held = True
    asking = asyncio.ensure_future(liar.ask(liar.vocabulary.spell("Q:")))  # noqa: TID251 - waited for below
    await asyncio.sleep(1.0)
    assert not asking.done()
    liar.fake.held = False
    assert (await asking).ids == [*liar.vocabulary.spell(TEXT), 1]


async def test_a_connection_that_the_engine_closed_while_idle_costs_nothing(liar: Any) -> None:
    liar.says("One.")
    assert await outcome(liar) == set()
    async with liar.down():
        pass
    liar.says("Two.")
    assert await outcome(liar) == set()


async def test_an_engine_that_was_started_again_in_mid_answer_is_asked_as_before(liar: Any) -> None:
    liar.says(TEXT)
    liar.fake.token_delay_s = 0.05
    asking = asyncio.ensure_future(outcome(liar))  # noqa: TID251 - waited for below
    await asyncio.sleep(0.3)
    async with liar.down():
        assert await asking & GONE
        assert await outcome(liar) == {"engine_unreachable"}
    liar.fake.token_delay_s = 0.0
    liar.forget()
    liar.says("Again.")
    assert await outcome(liar) == set()


async def test_an_engine_that_is_down_is_not_well(liar: Any) -> None:
    async with liar.down():
        assert await liar.engine.health()
    assert await liar.engine.health() == ""


async def test_opening_an_engine_that_is_given_up_leaves_no_connection(liar: Any) -> None:
    # It takes connections and answers nothing.
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await liar.open(f"http://127.0.0.1:{mute.getsockname()[1]}")
    # A session that nobody closed warns when it is collected, and warnings are errors.
    gc.collect()


async def test_a_connection_that_the_engine_closes_behind_a_good_answer_costs_nothing(liar: Any) -> None:
    if not liar.can("CLOSED"):
        pytest.skip(f"{liar.name} keeps its connections")
    for _ in range(3):
        liar.says("Good.")
        liar.trouble("CLOSED")
        assert await outcome(liar) == set()
