"""Two engines behind one Turnstile, one of which dies while ten agents work."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

import turnstile.engines.embedded_child as embedded_child
from turnstile.client import Client
from turnstile.config import Settings
from turnstile.engines.smollm import MODEL_NAME, say_nothing
from turnstile.history.forest import Forest
from turnstile.reasons import FailReason, NoteCode
from turnstile.server.fleet import engine_names
from turnstile.server.local import serving
from turnstile.store import Reader
from turnstile.trajectory.files import read, write
from turnstile.trajectory.validate import validate_file

AGENTS, TURNS = 10, 3


class Child:
    """A real llama.cpp server in a process of its own."""

    def __init__(self, gguf: Path) -> None:
        settings = embedded_child.ChildSettings(str(gguf), MODEL_NAME, "engine-key", 2048, 4, 1)
        program = [sys.executable, "-P", embedded_child.__file__]
        self.process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode(settings) + b"\n")
        self.process.stdin.flush()
        self.url: str = json.loads(self.process.stdout.readline())["url"]
        (self.name,) = engine_names((self.url,))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def children(gguf: Path) -> Iterator[tuple[Child, Child]]:
    both = Child(gguf), Child(gguf)
    yield both
    for each in both:
        if each.process.poll() is None:
            each.kill()


class Worker:
    """An agent that talks for some turns, and sends a request again until it is answered."""

    def __init__(self, url: str, name: str) -> None:
        self.path = f"{url}/r/{name}/v1/chat/completions"
        self.name = name
        self.messages: list[dict[str, Any]] = []
        self.errors: list[tuple[int, str]] = []
        self.histories: list[str] = []

    def work(self, began: threading.Barrier) -> None:
        for turn in range(TURNS):
            self.messages.append({"role": "user", "content": f"Turn {turn} of {self.name}: tell me something."})
            if turn == 1:
                began.wait(60)
            self.messages.append(self.asked())

    def asked(self) -> dict[str, Any]:
        body = {"model": "smol", "messages": self.messages, "max_tokens": 4, "temperature": 1.0}
        for _ in range(50):
            answer = httpx.post(self.path, json=body, timeout=90, trust_env=False)
            if answer.status_code == 200:
                self.histories.append(answer.headers["x-turnstile-history"])
                return answer.json()["choices"][0]["message"]
            error = answer.json()["error"]
            self.errors.append((answer.status_code, error["code"]))
            time.sleep(0.05)
        raise AssertionError(f"{self.name} was never answered: {self.errors[-1]}")


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_when_one_of_two_engines_is_killed_under_ten_agents_all_go_on_spliced_on_the_other_and_the_records_say_so(
    children: tuple[Child, Child], wires: Any, model_folder: Path, tmp_path: Path
) -> None:
    dead, alive = children
    settings = Settings(
        engine=dead.url,
        more_engines=(alive.url,),
        engine_api_key="engine-key",
        model="smol",
        tokenizer=model_folder,
        store=tmp_path / "store",
        port=0,
    )
    with serving(settings, say_nothing) as client:
        workers = [Worker(client.url, f"w{at}") for at in range(AGENTS)]
        began = threading.Barrier(AGENTS + 1)
        with ThreadPoolExecutor(AGENTS) as threads:
            working = [threads.submit(each.work, began) for each in workers]
            began.wait(90)
            time.sleep(0.3)
            dead.kill()
            for each in working:
                each.result(timeout=100)
        told = client.get("/metrics").decode()
        health = json.loads(client.get("/healthz"))
        trajectories = [client.trajectory(each.name) for each in workers]

    expected = ["root", *["spliced"] * (TURNS - 1)]
    assert [each.histories for each in workers] == [expected] * AGENTS
    assert {code for each in workers for _, code in each.errors} <= {"engine_unreachable"}
    forests = _forests(settings.store, workers)
    homes = {name: [state.started.engine_name for state in forest.calls.values()] for name, forest in forests.items()}
    assert {name: each[-1] for name, each in homes.items()} == dict.fromkeys(homes, alive.name)
    assert {each[0] for each in homes.values()} == {dead.name, alive.name}
    _each_move_is_recorded_once(forests, homes, dead.name, alive.name)
    moved = sum(dead.name in each for each in homes.values())
    assert f'turnstile_engine_up{{engine="{dead.name}"}} 0.0' in told
    assert f'turnstile_engine_up{{engine="{alive.name}"}} 1.0' in told
    assert f"turnstile_engine_moves_total {float(moved)}" in told
    assert health["status"] == "degraded"
    (trouble,) = wires.troubles(health)
    assert trouble.startswith(f"The engine {dead.name} is down: ")
    file = tmp_path / "out.jsonl"
    write(file, trajectories)
    assert [str(found) for found in validate_file(file) if found.code.startswith("E")] == []
    assert [len(rollout.sequences) for rollout in read(file)] == [1] * AGENTS


def _forests(store: Path, workers: list[Worker]) -> dict[str, Forest]:
    with Reader.open(store) as reader:
        return {each.name: Forest.of(reader.records(each.name)) for each in workers}


def _each_move_is_recorded_once(forests: dict[str, Forest], homes: dict[str, list[str]], dead: str, alive: str) -> None:
    for name, forest in forests.items():
        moves = [
            note.detail
            for state in forest.calls.values()
            for note in state.started.notes
            if note.code is NoteCode.ENGINE_MOVED
        ]
        assert len(moves) == (1 if dead in homes[name] else 0), name
        assert all(move.startswith(f"{dead} -> {alive}: No engine answers at") for move in moves)
        failed = Counter(state.failed.reason for state in forest.calls.values() if state.failed is not None)
        assert set(failed) <= {FailReason.ENGINE_UNREACHABLE}
        # What broke off was sampled anew, and nothing of it became a turn.
        assert sum(state.committed is not None for state in forest.calls.values()) == TURNS


class Pair:
    """A Turnstile over two engines that are only wire."""

    def __init__(self, fakes: list[Any], tokenizer: Any, settings: Settings, stack: ExitStack) -> None:
        self.fakes = fakes
        self.tokenizer = tokenizer
        self.settings = settings
        self.ends = [ExitStack() for _ in fakes]
        self._stack = stack
        for fake, end in zip(fakes, self.ends, strict=True):
            end.enter_context(fake.in_thread())
        self.urls = [f"http://127.0.0.1:{fake.port}" for fake in fakes]
        self.names = engine_names(self.urls)

    def client(self, **changes: Any) -> Client:
        first, *more = self.urls
        named = {"engine": first, "more_engines": tuple(more)} | changes
        return self._stack.enter_context(serving(msgspec.structs.replace(self.settings, **named), say_nothing))

    def leave(self) -> None:
        """Stop every Turnstile."""
        self._stack.close()

    def restart(self, at: int) -> None:
        self.ends[at].enter_context(self.fakes[at].in_thread(self.fakes[at].port))

    def answer(self, text: str) -> None:
        for fake in self.fakes:
            fake.answer = lambda _: self.tokenizer.encode(f"{text}<|im_end|>").tolist()


@pytest.fixture
def pair(fakes: Any, wires: Any, tools_folder: Path, tokenizers_of: Callable[[Path], Any], tmp_path: Path) -> Iterator[Pair]:  # fmt: skip # noqa: E501
    tokenizer = tokenizers_of(tools_folder)
    special = frozenset(token.id for token in tokenizer.added if token.special)
    eos = frozenset(tokenizer.encode("<|im_end|>"))
    made = [fakes.LlamaFake(wires.Rows(tokenizer), special=special, eos=eos, model="m") for _ in range(2)]
    with ExitStack() as stack:
        settings = Settings(engine="", tokenizer=tools_folder, store=tmp_path / "store", port=0)
        both = Pair(made, tokenizer, settings, stack)
        both.answer("Fine.")
        yield both
        stack.close()
        for end in both.ends:
            end.close()


def ask(client: Client, rollout: str, *texts: str, **fields: Any) -> httpx.Response:
    messages = [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(texts)]
    path = f"{client.url}/r/{rollout}/v1/chat/completions"
    return httpx.post(path, json={"model": "m", "messages": messages, **fields}, timeout=60, trust_env=False)


def homes(store: Path, rollout: str) -> list[str]:
    with Reader.open(store) as reader:
        return [state.started.engine_name for state in Forest.of(reader.records(rollout)).calls.values()]


def test_after_a_restart_of_turnstile_a_rollout_is_where_it_was_although_its_hash_says_another(pair: Pair) -> None:
    client = pair.client()
    ask(client, "r", "Hi")
    (first,) = homes(pair.settings.store, "r")
    at = pair.names.index(first)
    pair.ends[at].close()
    assert ask(client, "r", "Hi", "Fine.", "more").status_code == 503
    assert ask(client, "r", "Hi", "Fine.", "more").headers["x-turnstile-history"] == "spliced"
    pair.restart(at)
    pair.leave()
    again = pair.client()
    assert ask(again, "r", "Hi", "Fine.", "more", "Fine.", "yet more").headers["x-turnstile-history"] == "spliced"
    other = pair.names[1 - at]
    assert homes(pair.settings.store, "r") == [first, first, other, other]


def test_an_engine_that_comes_back_has_no_known_version_until_one_is_announced_for_it(pair: Pair) -> None:
    client = pair.client()
    client.post("/policy", {"version": 7})
    ask(client, "r", "Hi")
    (home,) = homes(pair.settings.store, "r")
    at = pair.names.index(home)
    pair.ends[at].close()
    assert json.loads(client.get("/healthz"))["status"] == "degraded"
    pair.restart(at)
    health = json.loads(client.get("/healthz"))
    assert {each["engine"]: each["version"] for each in health["policy"]} == {home: None, pair.names[1 - at]: 7}
    assert [each["is_up"] for each in health["engines"]] == [True, True]
    ask(client, "r", "Hi", "Fine.", "more")
    client.post("/policy", {"version": 8, "engine": home})
    ask(client, "r", "Hi", "Fine.", "more", "Fine.", "yet more")
    (sequence,) = client.trajectory("r").sequences
    versions = [part.policy_version_max for part, _ in sequence.sampled_segments()]
    assert versions == [7, None, 8]


def test_in_its_dialect_each_client_is_told_when_no_engine_is_left(pair: Pair) -> None:
    client = pair.client()
    for end in pair.ends:
        end.close()
    answer = ask(client, "r", "Hi")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"]["code"] == "engine_unreachable"
    anthropic = httpx.post(
        f"{client.url}/r/r/v1/messages",
        json={"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]},
        trust_env=False,
    )
    assert (anthropic.status_code, anthropic.json()["error"]["type"]) == (503, "overloaded_error")


def test_what_was_announced_and_what_is_held_survives_a_restart_of_turnstile(pair: Pair) -> None:
    client = pair.client()
    first, second = pair.names
    client.announce_policy(7, label="v7")
    client.announce_policy(8, engine=second)
    held = client.hold_policy(deadline_s=600, engine=first)
    pair.leave()
    again = pair.client()
    assert again.policy() == held
    assert [(each.engine, each.version, each.held_until is None) for each in held.engines] == [
        (first, 7, False),
        (second, 8, True),
    ]


def test_where_there_is_an_admin_key_only_its_holder_is_told_where_the_engines_are(pair: Pair) -> None:
    client = pair.client(admin_key="secret")
    told = httpx.get(f"{client.url}/healthz", trust_env=False).json()
    assert set(told) == {"status"}
    to_operator = json.loads(client.get("/healthz"))
    assert [each["name"] for each in to_operator["engines"]] == list(pair.names)
    refused = httpx.post(f"{client.url}/policy", json={"version": 1}, trust_env=False)
    assert (refused.status_code, [each.version for each in client.policy().engines]) == (401, [None, None])
