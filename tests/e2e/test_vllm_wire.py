"""A whole Turnstile over a vLLM that is only wire: true streams, in every dialect, that end, break off or lie."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from turnstile.client import Client, RolloutHandle
from turnstile.config import Settings
from turnstile.engines.smollm import say_nothing
from turnstile.history.forest import Forest
from turnstile.server.local import serving
from turnstile.store import Reader
from turnstile.templates.tokenizer import Tokenizer
from turnstile.trajectory.files import read, write
from turnstile.trajectory.format import Rollout
from turnstile.trajectory.validate import validate_file

DIALECTS = ("openai.chat", "openai.responses", "anthropic.messages", "google.gemini")
CALL = '<think>\nTo list.\n</think>\n\n<tool_call>\n{"name": "ls", "arguments": {"p": "."}}\n</tool_call><|im_end|>'
PATIENCE_S = 20.0


class Room:
    """A Turnstile over a fake vLLM."""

    def __init__(self, client: Client, fake: Any, tokenizer: Tokenizer, store: Path, http: httpx.Client) -> None:
        self.client = client
        self.fake = fake
        self.tokenizer = tokenizer
        self.store = store
        self.http = http

    def script(self, *texts: str) -> list[list[int]]:
        answers = [self.tokenizer.encode(text).tolist() for text in texts]
        self.fake.script(*answers)
        return answers

    def post(self, handle: RolloutHandle, speaker: Any, body: bytes) -> tuple[httpx.Response, bytes]:
        """An answer, as far as it came."""
        url, heard = speaker.url(handle, True), b""
        headers = {"authorization": f"Bearer {handle.agent_key}", "content-type": "application/json"}
        with self.http.stream("POST", url, content=body, headers=headers) as answer:
            try:
                for piece in answer.iter_raw():
                    heard += piece
            except httpx.RemoteProtocolError:
                pass
        return answer, heard

    def forest(self, handle: RolloutHandle) -> Forest:
        with Reader.open(self.store) as reader:
            return Forest.of(reader.records(handle.rollout_id))

    def exported(self, handle: RolloutHandle, folder: Path) -> Rollout:
        file = folder / "out.jsonl"
        write(file, [handle.trajectory()])
        assert [str(found) for found in validate_file(file) if found.code.startswith("E")] == []
        (rollout,) = read(file)
        return rollout


@pytest.fixture(scope="module")
def one_room(
    vllm_fakes: Any,
    family: Callable[[str], Path],
    tokenizers_of: Callable[[Path], Tokenizer],
    wires: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Room]:
    folder = family("qwen3")
    tokenizer = tokenizers_of(folder)
    special = frozenset(token.id for token in tokenizer.added if token.special)
    end = tokenizer.id_of("<|im_end|>")
    fake = vllm_fakes.VllmFake(
        wires.Rows(tokenizer),
        special=special,
        eos=frozenset({end}),
        encode=lambda text: tokenizer.encode(text).tolist(),
    )
    with ExitStack() as stack:
        url = stack.enter_context(fake.in_thread())
        settings = Settings(
            engine=url,
            model="m",
            tokenizer=folder,
            store=tmp_path_factory.mktemp("store"),
            port=0,
            grace_s=1.0,
            keep_alive_s=0.2,
        )
        client = stack.enter_context(serving(settings, say_nothing))
        http = stack.enter_context(httpx.Client(timeout=PATIENCE_S, trust_env=False))
        yield Room(client, fake, tokenizer, settings.store, http)


@pytest.fixture
def room(one_room: Room) -> Iterator[Room]:
    """A Turnstile over a fake vLLM that is as it was."""
    one_room.fake.requests.clear()
    yield one_room
    is_spent = one_room.fake.is_spent
    one_room.fake.forget()
    assert is_spent, "the test left answers or faults that nothing asked for"


@pytest.fixture(params=DIALECTS)
def speaker(request: pytest.FixtureRequest, speaking: Any) -> Any:
    """Each dialect."""
    return speaking.SPEAKERS[request.param]


def test_a_streamed_call_and_its_result_are_one_run_of_ids(
    room: Room, speaker: Any, speaking: Any, tmp_path: Path
) -> None:
    first_ids, last_ids = room.script(CALL, "Done.<|im_end|>")
    with room.client.rollout() as handle:
        _, heard = room.post(handle, speaker, speaker.body("list", stream=True))
        said = speaker.heard(heard, True)
        result = speaking.Result(said.calls[0], "a.txt")
        answer, _ = room.post(handle, speaker, speaker.body("list", said, result, stream=True))
        (sequence,) = room.exported(handle, tmp_path).sequences
    assert [(call.name, call.arguments) for call in said.calls] == [("ls", {"p": "."})]
    assert answer.headers["x-turnstile-history"] == "spliced"
    ids = sequence.token_ids.tolist()
    sampled = [ids[part.start : part.end] for part, _ in sequence.sampled_segments()]
    assert sampled == [first_ids, last_ids]
    prompts = [body["token_ids"] for _, body in room.fake.requests]
    assert prompts[1][: len(prompts[0]) + len(first_ids)] == prompts[0] + first_ids
    assert ids == prompts[1] + last_ids
    assert sequence.logprobs.tolist() == pytest.approx(
        [room.fake.logprob(token) for token in first_ids + last_ids], abs=1e-4
    )


@pytest.mark.parametrize("fault", ["CUT", "CUT_CLEAN", "ERROR_EVENT"])
def test_case_e2_a_stream_that_dies_after_its_200_fails_in_the_dialect_and_leaves_no_turn(
    room: Room, speaker: Any, vllm_fakes: Any, tmp_path: Path, fault: str
) -> None:
    broken_ids, good_ids = room.script("One two three four five.<|im_end|>", "One.<|im_end|>")
    room.fake.faults.append(vllm_fakes.Fault[fault])
    asked = speaker.body("count", stream=True)
    with room.client.rollout() as handle:
        answer, heard = room.post(handle, speaker, asked)
        _, again = room.post(handle, speaker, asked)
        (failed, whole) = room.forest(handle).calls.values()
        rollout = room.exported(handle, tmp_path)
    assert answer.status_code == 200
    assert speaker.tells_error(heard)
    assert not speaker.ends_cleanly(heard)
    assert speaker.heard(again, True).text == "One."
    # Generate has no opening event, so three events are three ids.
    assert (failed.committed, failed.failed.partial_S.tolist()) == (None, broken_ids[:3])
    assert whole.committed is not None
    (sequence,) = rollout.sequences
    assert sequence.token_ids.tolist()[sequence.prompt_length :] == good_ids
    assert sum(rollout.token_counts.discarded.values()) == 3


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("WRONG_COUNT", "ids_incomplete"), ("NO_LOGPROBS", "logprobs_missing"), ("STOP_ID_LOST", "stop_unknown")],
)
def test_an_answer_of_which_something_is_missing_is_shown_and_masked(
    room: Room, speaker: Any, vllm_fakes: Any, tmp_path: Path, fault: str, reason: str
) -> None:
    room.script("One two.<|im_end|>")
    room.fake.faults.append(vllm_fakes.Fault[fault])
    with room.client.rollout() as handle:
        _, heard = room.post(handle, speaker, speaker.body("count", stream=True))
        rollout = room.exported(handle, tmp_path)
    assert speaker.heard(heard, True).text == "One two."
    (call,) = rollout.calls
    assert reason in call.incomplete_reasons
    assert rollout.token_counts.trainable == 0


def test_case_a3_another_prompt_than_was_sent_is_no_turn(
    room: Room, speaker: Any, vllm_fakes: Any, tmp_path: Path
) -> None:
    _, good_ids = room.script("lost<|im_end|>", "One.<|im_end|>")
    room.fake.faults.append(vllm_fakes.Fault.OTHER_PROMPT)
    with room.client.rollout() as handle:
        answer, _ = room.post(handle, speaker, speaker.body("hi", stream=True))
        room.post(handle, speaker, speaker.body("hi", stream=True))
        rollout = room.exported(handle, tmp_path)
        summary = json.loads(room.client.get(f"/rollouts/{handle.rollout_id}"))
    assert answer.status_code == 502
    assert summary["failed_calls"] == {"echo_mismatch": 1}
    (sequence,) = rollout.sequences
    assert sequence.token_ids.tolist()[sequence.prompt_length :] == good_ids


def test_case_e4_a_slow_first_token_costs_one_request_and_keeps_the_client(
    room: Room, speaker: Any, vllm_fakes: Any
) -> None:
    room.fake.slow_s = 1.0
    room.script("One.<|im_end|>")
    room.fake.faults.append(vllm_fakes.Fault.SLOW)
    with room.client.rollout() as handle:
        _, heard = room.post(handle, speaker, speaker.body("hi", stream=True))
    assert speaker.heard(heard, True).text == "One."
    assert heard.count(speaker.keep_alive) >= 2
    assert len(room.fake.requests) == 1


def test_the_weights_of_each_id_are_recorded_as_the_engine_says(room: Room, speaker: Any, tmp_path: Path) -> None:
    (ids,) = room.script("One two three four.<|im_end|>")
    room.fake.updates = {0: "6", 3: "7"}
    with room.client.rollout() as handle:
        room.post(handle, speaker, speaker.body("count", stream=True))
        (sequence,) = room.exported(handle, tmp_path).sequences
    assert list(sequence.versions_T())[sequence.prompt_length :] == [6] * 3 + [7] * (len(ids) - 3)
