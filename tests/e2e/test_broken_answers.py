"""Public cases E2, E4 and F1 to F6 in every dialect: answers that break off or are not heard, and what clients do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from turnstile.protocols import DIALECTS

DIALECT = pytest.mark.parametrize("dialect", [dialect.name for dialect in DIALECTS])
GO_ON_WRITING = ("anthropic.messages", "google.gemini")
"""Dialects in which an assistant message at the end of a history is to be gone on with."""
THOUGHT = "<think>\nI look.\n</think>\n\n"
TEXT = "Looking."
CALL = '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call>'
LONG_CALL = '<tool_call>\n{"name": "ls", "arguments": {"p": "' + "/long" * 80 + '"}}\n</tool_call>'


@pytest.fixture
def talk(wired: Callable[..., Any], speaking: Any) -> Callable[[str], Any]:
    room = wired("qwen3")
    return lambda dialect: speaking.Talker(room, speaking.SPEAKERS[dialect], room.agent())


def end_of(room: Any, ids: list[int], marker: str) -> int:
    """How many ids end with the first of a marker."""
    return ids.index(room.id_of(marker)) + 1


@DIALECT
def test_case_f6_the_finished_part_of_an_aborted_answer_is_gone_on_from_with_its_own_ids(
    talk: Callable[[str], Any], dialect: str, fakes: Any, speaking: Any, wires: Any, tmp_path: Path
) -> None:
    it = talk(dialect)
    room = it.room
    ids = room.ids(f"{THOUGHT}{TEXT}\n{CALL}\n{LONG_CALL}<|im_end|>")
    end = end_of(room, ids, "</tool_call>")
    speaking.broken_behind(room, fakes, ids, end)
    first = it.say("go")
    kept = it.heard(first)
    second_ids, third_ids = room.script("Found b.<|im_end|>", "Done.<|im_end|>")
    second = it.say("go", kept, speaking.Result(kept.calls[0], "b"))
    third = it.say("go", kept, speaking.Result(kept.calls[0], "b"), it.heard(second), "more")

    assert it.broke_off(first)
    assert (kept.text.strip(), [call.arguments for call in kept.calls]) == (TEXT, [{"p": "/a"}])
    assert (second.history, third.history) == ("spliced", "spliced")
    assert second.prompt[: len(first.prompt) + end] == first.prompt + ids[:end]
    assert third.prompt[: len(second.prompt) + len(second_ids)] == second.prompt + second_ids
    broken, resumed, _ = it.calls
    assert [note.detail for note in resumed.started.notes if note.code.value == "continued_from_aborted"] == [
        f"{end} of {len(broken.failed.partial_S)} ids"
    ]
    rollout = it.agent.exported(tmp_path)
    (sequence,) = rollout.sequences
    assert wires.sampled(sequence) == [ids[:end], second_ids, third_ids]
    counts = rollout.token_counts
    assert counts.discarded == {"aborted_tail": len(broken.failed.partial_S) - end}
    assert rollout.calls[0].finish == "abort"
    numbers = [room.fake.logprob(token) for token in (*ids[:end], *second_ids, *third_ids)]
    assert sequence.logprobs.tolist() == pytest.approx(numbers, abs=1e-4)


@DIALECT
def test_case_f6_the_same_body_without_the_items_is_a_plain_retry(
    talk: Callable[[str], Any], dialect: str, fakes: Any, speaking: Any, wires: Any, tmp_path: Path
) -> None:
    it = talk(dialect)
    room = it.room
    ids = room.ids(f"{THOUGHT}{TEXT}\n{CALL}\n{LONG_CALL}<|im_end|>")
    speaking.broken_behind(room, fakes, ids, end_of(room, ids, "</tool_call>"))
    first = it.say("go")
    (again_ids,) = room.script("A<|im_end|>")
    again = it.say("go")

    assert (again.prompt, again.history, it.heard(again).text) == (first.prompt, "root", "A")
    assert it.calls[1].started.notes == ()
    rollout = it.agent.exported(tmp_path)
    assert [wires.sampled(sequence) for sequence in rollout.sequences] == [[again_ids]]
    assert rollout.token_counts.discarded == {"engine_unreachable": len(it.calls[0].failed.partial_S)}


@DIALECT
@pytest.mark.parametrize("fault", ["HALF_BODY", "NOT_JSON", "ERROR_500"])
def test_case_e2_f5_an_engine_that_dies_behind_the_first_bytes_is_told_as_a_failure_and_no_end(
    talk: Callable[[str], Any], dialect: str, fault: str, fakes: Any, speaking: Any, wires: Any, tmp_path: Path
) -> None:
    it = talk(dialect)
    room = it.room
    ids = room.ids(f"{THOUGHT}One two three four five six seven eight nine ten.<|im_end|>")
    speaking.broken_behind(room, fakes, ids, 18, fault)
    told = it.say("go")
    (again_ids,) = room.script("A<|im_end|>")
    again = it.say("go")

    assert (told.status, it.broke_off(told), told.is_stream) == (200, True, True)
    assert not it.broke_off(again)
    (broken, _) = it.calls
    partial_S = broken.failed.partial_S.tolist()
    assert partial_S == ids[: len(partial_S)]
    (known,) = broken.failed.partials
    assert known.logprobs_S.tolist() == pytest.approx([room.fake.logprob(token) for token in partial_S], abs=1e-4)
    assert (known.logprobs_mode, known.logprobs_temperature) == ("processed", 1.0)
    rollout = it.agent.exported(tmp_path)
    assert [wires.sampled(sequence) for sequence in rollout.sequences] == [[again_ids]]
    assert sum(rollout.token_counts.discarded.values()) == len(partial_S)


@DIALECT
@pytest.mark.parametrize("stream", [False, True])
def test_case_e2_an_engine_that_dies_before_the_first_byte_is_an_error_status_in_the_dialects_shape(
    talk: Callable[[str], Any], dialect: str, stream: bool, fakes: Any
) -> None:
    it = talk(dialect)
    it.room.fake.faults.append(fakes.Fault.NOT_JSON)
    told = it.say("go", stream=stream)
    assert (told.status >= 500, told.is_stream, told.is_broken) == (True, False, False)
    assert it.speaker.is_refusal(told.body)


@pytest.fixture(scope="module")
def brisk(wire_up: Callable[..., Any], tools_folder: Path) -> Iterator[Any]:
    """A server that sends keep-alives every 50 milliseconds and gives a call up soon."""
    with wire_up(tools_folder, ["<|im_end|>"], keep_alive_s=0.05, grace_s=0.2) as room:
        yield room


@pytest.fixture
def silent(brisk: Any, speaking: Any) -> Iterator[Callable[[str], Any]]:
    """Its engine is silent until it is let go."""
    brisk.fake.held = True
    yield lambda dialect: speaking.Talker(brisk, speaking.SPEAKERS[dialect], brisk.agent())
    brisk.fake.forget()


def let_go_later(it: Any, stream: bool) -> Any:
    """An answer whose engine was silent for a while."""
    timer = threading.Timer(0.4, lambda: setattr(it.room.fake, "held", False))
    timer.start()
    told = it.say("go", stream=stream)
    timer.join()
    return told


@DIALECT
def test_case_e4_keep_alives_bridge_a_silent_engine(silent: Callable[[str], Any], dialect: str) -> None:
    it = silent(dialect)
    it.room.script("A<|im_end|>")
    told = let_go_later(it, stream=True)
    assert told.body.count(it.speaker.keep_alive) >= 3
    assert (it.heard(told).text, told.prompts, it.broke_off(told)) == ("A", 1, False)
    assert it.speaker.ends_cleanly(told.body)


@DIALECT
def test_case_e4_an_error_behind_keep_alives_is_a_failure_of_the_stream_and_recorded(
    silent: Callable[[str], Any], dialect: str, fakes: Any
) -> None:
    it = silent(dialect)
    it.room.script("A<|im_end|>")
    it.room.fake.faults.append(fakes.Fault.NOT_JSON)
    told = let_go_later(it, stream=True)
    assert told.body.count(it.speaker.keep_alive) >= 3
    assert (told.status, told.prompts, it.broke_off(told)) == (200, 1, True)
    assert it.agent.summary["failed_calls"] == {"engine_broken": 1}


@DIALECT
def test_case_e4_a_whole_answer_is_not_begun_before_it_is_there(silent: Callable[[str], Any], dialect: str) -> None:
    it = silent(dialect)
    it.room.script("A<|im_end|>")
    told = let_go_later(it, stream=False)
    assert (told.status, it.heard(told).text, told.body[:1]) == (200, "A", b"{")


@DIALECT
@pytest.mark.parametrize("stream", [False, True])
def test_case_f3_a_client_that_hangs_up_stops_the_engine_and_what_came_is_kept_with_its_numbers(
    silent: Callable[[str], Any], dialect: str, stream: bool, wires: Any, tmp_path: Path
) -> None:
    it = silent(dialect)
    room = it.room
    room.script(room.ids("word") * 2000)
    room.fake.held, room.fake.token_delay_s = False, 0.02
    before, aborted = room.fake.begun, room.fake.aborted
    with it.calling("go", stream=stream):
        wires.eventually(lambda: room.fake.begun > before)
        time.sleep(0.2)
    wires.eventually(lambda: room.fake.aborted > aborted)
    wires.eventually(lambda: it.agent.summary["failed_calls"] == {"client_gone": 1})
    (gone,) = it.calls
    (known,) = gone.failed.partials
    assert len(known.logprobs_S) == len(gone.failed.partial_S) > 0
    rollout = it.agent.exported(tmp_path)
    assert (rollout.sequences, rollout.token_counts.discarded) == ((), {"client_gone": len(gone.failed.partial_S)})


RETRIES = pytest.mark.parametrize(
    ("first", "again"),
    [
        ({"x-stainless-retry-count": "0"}, {"x-stainless-retry-count": "1", "x-stainless-timeout": "7"}),
        ({"idempotency-key": "k"}, {"idempotency-key": "k"}),
        ({"x-stainless-retry-count": "0", "x-stainless-timeout": "600"}, {"x-stainless-retry-count": "0"}),
    ],
    ids=["retry count", "idempotency key", "unmarked, another time-out"],
)


@DIALECT
@RETRIES
def test_case_f1_an_answer_that_nobody_heard_is_given_to_its_repeat_however_it_is_delivered(
    talk: Callable[[str], Any],
    dialect: str,
    first: dict[str, str],
    again: dict[str, str],
    speaking: Any,
    wires: Any,
    tmp_path: Path,
) -> None:
    it = talk(dialect)
    room = it.room
    (call_ids,) = room.script(f"{CALL}<|im_end|>")
    room.fake.held, began = True, room.fake.begun
    with it.calling("go", headers=first):
        wires.eventually(lambda: room.fake.begun > began)
    room.fake.held = False
    wires.eventually(lambda: it.calls[0].undelivered)
    told = it.say("go", headers=again, stream=False)
    (last_ids,) = room.script("Found b.<|im_end|>")
    heard = it.heard(told)
    second = it.say("go", heard, *(speaking.Result(call, "b") for call in heard.calls))

    assert (told.status, told.prompts, told.history) == (200, 0, "root")
    assert [call.arguments for call in heard.calls] == [{"p": "/a"}]
    assert second.history == "spliced"
    assert [joined.how for joined in it.calls[0].joined] == ["replayed"]
    rollout = it.agent.exported(tmp_path)
    assert [wires.sampled(sequence) for sequence in rollout.sequences] == [[call_ids, last_ids]]


@DIALECT
@pytest.mark.parametrize("leaves", [False, True], ids=["first still connected", "first gone"])
def test_case_f2_a_repeat_of_a_running_call_waits_for_the_same_answer(
    talk: Callable[[str], Any], dialect: str, leaves: bool, wires: Any
) -> None:
    it = talk(dialect)
    room = it.room
    room.script("one two three<|im_end|>")
    key = {"idempotency-key": "k"}
    room.fake.held, began = True, room.fake.begun
    with ThreadPoolExecutor() as pool, it.calling("go", headers=key) as line:
        wires.eventually(lambda: room.fake.begun > began)
        if leaves:
            line.close()
        second = pool.submit(it.say, "go", headers=key, stream=False)
        wires.eventually(lambda: it.agent.summary["retries"] == 1)
        room.fake.held = False
        told = second.result(wires.PATIENCE_S)
    assert (told.status, it.heard(told).text, room.fake.begun) == (200, "one two three", began + 1)
    assert [joined.how for state in it.calls for joined in state.joined] == ["coalesced"]


@DIALECT
def test_case_f2_a_used_key_with_another_body_is_a_conflict_in_the_dialects_shape(
    talk: Callable[[str], Any], dialect: str
) -> None:
    it = talk(dialect)
    it.room.script("A<|im_end|>")
    it.say("go", headers={"idempotency-key": "k"})
    other = it.say("go elsewhere", headers={"idempotency-key": "k"})
    assert (other.status, other.prompts, it.speaker.is_refusal(other.body)) == (409, 0, True)


@DIALECT
def test_a_repeat_of_an_answer_that_arrived_is_a_sibling(talk: Callable[[str], Any], dialect: str) -> None:
    it = talk(dialect)
    it.room.script("A<|im_end|>", "B<|im_end|>")
    told = [it.say("go"), it.say("go", stream=False)]
    assert [it.heard(each).text for each in told] == ["A", "B"]
    assert it.agent.summary["retries"] == 0


@DIALECT
def test_case_f6_a_history_that_ends_with_the_finished_items_goes_on_behind_their_ids(
    talk: Callable[[str], Any], dialect: str, fakes: Any, speaking: Any, wires: Any, tmp_path: Path
) -> None:
    it = talk(dialect)
    room = it.room
    ids = room.ids(f"{THOUGHT}{TEXT}\n{CALL}\n{LONG_CALL}<|im_end|>")
    speaking.broken_behind(room, fakes, ids, end_of(room, ids, "</tool_call>"))
    first = it.say("go")
    kept = it.heard(first)
    said = [item for item in kept.echo if not is_call(item)]
    # The last id of the text has the line break in it that stands in front of the call.
    end = ids.index(room.ids(f"{TEXT}\n")[-1], ids.index(room.id_of("</think>"))) + 1
    goes_on_writing = dialect in GO_ON_WRITING
    (rest,) = [ids[end:]] if goes_on_writing else room.script("On I go.<|im_end|>")
    second = it.say("go", speaking.Heard(kept.reasoning, kept.text, (), without_calls(said)))

    assert second.history == "spliced"
    held = first.prompt + ids[:end]
    assert second.prompt == held if goes_on_writing else second.prompt[: len(held)] == held
    rollout = it.agent.exported(tmp_path)
    (sequence,) = rollout.sequences
    assert [token for run in wires.sampled(sequence) for token in run] == ids[:end] + rest
    assert rollout.token_counts.discarded == {"aborted_tail": len(it.calls[0].failed.partial_S) - end}


def is_call(item: dict[str, Any]) -> bool:
    return item.get("type") in ("function_call", "tool_use") or "functionCall" in item


def without_calls(items: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    return tuple({name: value for name, value in item.items() if name != "tool_calls"} for item in items)
