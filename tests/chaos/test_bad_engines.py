"""An engine that breaks, lies, floods or hangs costs its own call and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bad_line
import httpx
import pytest
from judge import unsound

from turnstile.history.forest import Forest
from turnstile.store import Reader
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.validate import validate

pytestmark = pytest.mark.timeout(300)
PATIENCE_S = 60.0
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
MENDED = ("resets before the body", "resets without an answer", "resets in the head")
FLOOD_BYTES = 160 << 20
"""What the allocator may keep of the first flood of 128 MiB that was refused."""


class Behind:
    """A Turnstile whose engine is behind a bad line, and an agent."""

    def __init__(self, siege: Any, line: bad_line.BadLine, http: httpx.Client) -> None:
        self.siege = siege
        self.line = line
        self.http = http
        self.fake: Any = None
        """The engine behind the line."""
        self.rollouts = 0

    def ask(self, rollout_id: str, messages: list[dict[str, str]], **fields: Any) -> httpx.Response:
        url = f"{self.siege.server.url}/r/{rollout_id}/v1/chat/completions"
        return self.http.post(url, json={"model": "m", "messages": messages, "max_tokens": 32, **fields})

    def give_up(self, rollout_id: str, **fields: Any) -> None:
        """Ask, and hang up when nothing more has come for a while."""
        url = f"{self.siege.server.url}/r/{rollout_id}/v1/chat/completions"
        body = {"model": "m", "messages": [user("go")], "max_tokens": 32, **fields}
        with pytest.raises(httpx.ReadTimeout):
            self.http.post(url, json=body, timeout=httpx.Timeout(PATIENCE_S, read=1.0))

    def forest(self, rollout_id: str) -> Forest:
        """What the journal says of a rollout."""
        with Reader.open(self.siege.store) as reader:
            return Forest.of(reader.records(rollout_id))

    def new(self) -> str:
        self.rollouts += 1
        return f"bad-{self.rollouts}"


@pytest.fixture(scope="module")
def behind(
    chaos_folder: Path, chaos_engine: Any, healthy: Any, tmp_path_factory: pytest.TempPathFactory, siege_of: Any
) -> Iterator[Behind]:
    with bad_line.BadLine(chaos_engine.url, "/completion").in_thread() as line:
        siege = siege_of(chaos_folder / "model", healthy, line, tmp_path_factory.mktemp("behind") / "store")
        siege.start()
        with httpx.Client(timeout=PATIENCE_S, trust_env=False) as http:
            behind = Behind(siege, line, http)
            behind.fake = chaos_engine.fake
            yield behind
        siege.server.kill()
        # Whatever was done to it, its store is whole.
        assert list(unsound(siege.store)) == []
        assert siege.tracebacks() == []


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def failure_of(answer: httpx.Response) -> dict[str, Any]:
    """The error that a client is told, however it is told."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return answer.json()["error"]
    lines = [line[6:] for line in answer.text.split("\n") if line.startswith("data: ")]
    assert "[DONE]" not in lines
    return json.loads(lines[-1])["error"]


def is_sound(store: Path, rollout_id: str, turns: int) -> Forest:
    with Reader.open(store) as reader:
        forest = Forest.of(reader.records(rollout_id))
    rollout = assemble(forest)
    assert [str(each) for each in validate(rollout) if each.code.startswith("E")] == []
    assert sum(call.kind == "agent" for call in rollout.calls) == turns
    assert forest.open_calls == ()
    return forest


@pytest.mark.parametrize(("how", "stream"), [(how, bool(at % 2)) for at, how in enumerate(bad_line.BROKEN)])
def test_a_call_that_the_engine_spoils_is_an_engines_error_and_the_rollout_goes_on(
    behind: Behind, how: str, stream: bool
) -> None:
    rollout_id, turns = behind.new(), [user("go")]
    turns.append(behind.ask(rollout_id, turns).json()["choices"][0]["message"])
    turns.append(user("on"))
    resident, served = behind.siege.server.resident_bytes(), behind.line.served
    behind.line.next = bad_line.BROKEN[how]
    spoiled = behind.ask(rollout_id, turns, stream=stream)
    # A connection that breaks before its answer begins is tried once more, and then all is well.
    if not (was_mended := how in MENDED):
        error = failure_of(spoiled)
        assert error["code"].startswith(("engine_", "echo_mismatch")), error
        assert spoiled.status_code in (200, 500, 502, 503), error
        assert error["message"].endswith("."), error
    later = behind.ask(rollout_id, turns)

    assert behind.line.served == served + 1
    assert later.headers["x-turnstile-history"] == "spliced"
    assert behind.siege.server.resident_bytes() < resident + FLOOD_BYTES
    is_sound(behind.siege.store, rollout_id, 3 if was_mended else 2)


@STREAMS
@pytest.mark.parametrize("how", bad_line.DOUBTFUL)
def test_numbers_that_are_missing_or_of_others_are_not_believed(behind: Behind, how: str, stream: bool) -> None:
    rollout_id = behind.new()
    behind.line.next = bad_line.DOUBTFUL[how]
    answered = behind.ask(rollout_id, [user("go")], stream=stream)
    forest = is_sound(behind.siege.store, rollout_id, 1)
    (sequence,) = assemble(forest).sequences
    (part,) = [part for part, _ in sequence.sampled_segments()]
    ids, numbers = sequence.token_ids.tolist(), sequence.logprobs.tolist()
    assert answered.status_code == 200
    # They are asked for again, and those are the right ones.
    known = [behind.fake.logprob(token) for token in ids[part.start : part.end]]
    assert numbers[-len(known) :] == pytest.approx(known, abs=1e-4)


@STREAMS
def test_an_engine_that_says_a_byte_at_a_time_is_understood(behind: Behind, stream: bool) -> None:
    rollout_id = behind.new()
    behind.line.next = bad_line.trickle
    answered = behind.ask(rollout_id, [user("go")], stream=stream)
    assert answered.status_code == 200
    assert not stream or answered.text.endswith("data: [DONE]\n\n")
    is_sound(behind.siege.store, rollout_id, 1)


@pytest.mark.parametrize(("how", "stream"), [(how, bool(at % 2)) for at, how in enumerate(bad_line.SILENT)])
def test_a_call_to_an_engine_that_hangs_ends_with_its_client(
    behind: Behind, how: str, stream: bool, wires: Any
) -> None:
    rollout_id = behind.new()
    open_before, served = behind.line.open, behind.line.served
    behind.line.next = bad_line.SILENT[how]
    behind.give_up(rollout_id, stream=stream)
    wires.eventually(lambda: behind.line.served > served and behind.line.open <= open_before + 1)
    # Until then a call of the same meaning waits for this one.
    wires.eventually(lambda: any(state.failed for state in behind.forest(rollout_id).calls.values()))
    answered = behind.ask(rollout_id, [user("go")])
    assert answered.status_code == 200
    forest = is_sound(behind.siege.store, rollout_id, 1)
    assert [state.failed.reason.value for state in forest.calls.values() if state.failed] == ["client_gone"]


def test_after_all_of_it_connections_and_files_are_as_few_as_before(behind: Behind, wires: Any) -> None:
    files, resident = behind.siege.server.open_files(), list[int]()
    for _ in range(3):
        behind.line.next = bad_line.BROKEN["never ends"]
        behind.ask(behind.new(), [user("go")])
        resident.append(behind.siege.server.resident_bytes())
    # The first may leave its room with the allocator; the next ones find it there.
    assert max(resident) < resident[0] + FLOOD_BYTES // 4
    for how in ("resets in the body", "speaks no HTTP", "says less than its length") * 3:
        behind.line.next = bad_line.BROKEN[how]
        behind.ask(behind.new(), [user("go")])
    wires.eventually(lambda: behind.siege.server.open_files() <= files + 2)
