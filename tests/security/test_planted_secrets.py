"""Secrets planted in every place where one can stand, and then looked for in everything that came out.

A whole `turnstile serve` process, its log at its most talkative, an engine that repeats its key in a refusal, agents in
all dialects with answers, failures, resets and damaged requests. What was said may stand in the store and in exports,
where it belongs, and nowhere else.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

DIALECTS = ("openai.chat", "openai.responses", "anthropic.messages", "google.gemini")
ADMIN, OLD_ADMIN, READ, ENGINE = (f"planted-{name}-5e1f" for name in ("admin", "old-admin", "reader", "engine"))
COOKIE, PROXY, QUERY, WRONG, HEADER = (
    f"planted-{name}-5e1f" for name in ("cookie", "proxy", "query", "wrong", "header")
)
SAID = "planted-content-5e1f"
"""What agents say, the model answers and tools are called: content."""
KEYS = {
    "the admin key": ADMIN, "the admin key's predecessor": OLD_ADMIN, "the read key": READ, "the engine's key": ENGINE,
    "a cookie": COOKIE, "a proxy's password": PROXY, "a parameter of the address": QUERY, "a wrong key": WRONG,
    "a header": HEADER,
}  # fmt: skip


class Serving:
    """The process, and all that it let out."""

    def __init__(self, folder: Path, engine: str, tokenizer: Path, collector: str) -> None:
        self.store, self.told = folder / "store", folder / "told"
        options = [
            "--engine", engine, "--tokenizer", str(tokenizer), "--store", str(self.store), "--port", "0", "--json",
            "--log", "json",
        ]  # fmt: skip
        secrets = {
            "TURNSTILE_ADMIN_KEY": f"{ADMIN},{OLD_ADMIN}",
            "TURNSTILE_READ_KEY": READ,
            "TURNSTILE_ENGINE_API_KEY": ENGINE,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
        }
        self._log = self.told.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-X", "dev", "-m", "turnstile.cli", "serve", *options],
            env={**os.environ, **secrets, "PYTHONASYNCIODEBUG": "0"},
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        assert first, self.told.read_text(errors="replace")
        self.out = [first]
        self.url: str = json.loads(first)["url"]
        self.command = Path(f"/proc/{self.process.pid}/cmdline")

    def stop(self) -> None:
        if self._log.closed:
            return
        self.process.terminate()
        self.process.wait(120)
        assert self.process.stdout is not None
        self.out.append(self.process.stdout.read())
        self.process.stdout.close()
        self._log.close()


class Seen:
    """Bytes by where they came out."""

    def __init__(self) -> None:
        self.outside: dict[str, bytes] = {}
        """Where nothing that was said belongs."""
        self.records: dict[str, bytes] = {}
        """Where it does."""
        self.agent_keys: list[str] = []

    def answered(self, what: str, answer: httpx.Response) -> None:
        """An answer of Turnstile's to a call that failed, or of an operator's."""
        self.outside[what] = str(answer.headers).encode() + answer.read()


def forms(secret: str) -> list[bytes]:
    """A secret as it is, and as it stands in addresses and in JSON."""
    return [secret.encode(), quote(secret, safe="").encode(), json.dumps(secret)[1:-1].encode()]


def found(secret: str, places: dict[str, bytes]) -> list[str]:
    return [place for place, told in places.items() if any(form in told for form in forms(secret))]


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.fixture
def served(
    fakes: Any, wires: Any, receiver: Any, tools_folder: Path, tokenizers_of: Callable[..., Any], tmp_path: Path
) -> Iterator[tuple[Serving, Any]]:
    tokenizer = tokenizers_of(tools_folder)
    end = tokenizer.id_of("<|im_end|>")
    fake = fakes.LlamaFake(
        wires.Rows(tokenizer), special=frozenset({end}), eos=frozenset({end}), model="m", api_key=ENGINE
    )
    fake.answer = lambda _: tokenizer.encode(f"{SAID} heard<|im_end|>").tolist()
    with ExitStack() as stack:
        url = stack.enter_context(fake.in_thread())
        serving = Serving(tmp_path, url, tools_folder, receiver.url)
        stack.callback(serving.stop)
        yield serving, fake


@pytest.mark.timeout(600)
def test_no_secret_comes_out_anywhere_and_what_was_said_only_where_it_belongs(
    served: tuple[Serving, Any], speaking: Any, fakes: Any, receiver: Any, tmp_path: Path
) -> None:
    serving, fake = served
    seen = Seen()
    with httpx.Client(timeout=120, trust_env=False) as http:
        for dialect in DIALECTS:
            _talk(Agent(http, serving, fake, seen), speaking.SPEAKERS[dialect], fakes)
        _operate(http, serving, seen)
        if serving.command.exists():
            seen.outside["the command line"] = serving.command.read_bytes()
        seen.records |= {f"live {name}": told for name, told in files_below(serving.store).items()}
    serving.stop()
    seen.outside["standard error"] = serving.told.read_bytes()
    seen.outside["standard output"] = b"".join(serving.out)
    seen.outside["spans"] = b"".join(body for _, body in receiver.received)
    seen.records |= {f"stopped {name}": told for name, told in files_below(serving.store).items()}
    _export(serving.store, tmp_path / "exports", seen)

    assert len(seen.agent_keys) == len(DIALECTS)
    everywhere = {**seen.outside, **seen.records}
    for name, secret in (*KEYS.items(), *((f"agent key {at}", key) for at, key in enumerate(seen.agent_keys))):
        assert found(secret, everywhere) == [], name
        assert found(secret[-16:], everywhere) == [], f"the end of {name}"
    assert found(SAID, seen.outside) == []
    # The search finds what is there: what was said stands in the journal's own bytes and in each export.
    assert len(found(SAID, seen.records)) >= 4
    assert b"engine_key_refused" in seen.outside["standard error"]
    assert b"engine_key_refused" in seen.outside["spans"]
    assert any("metrics" in place for place in seen.outside)


class Agent:
    """One rollout, and all that its agent sends with its requests."""

    def __init__(self, http: httpx.Client, serving: Serving, fake: Any, seen: Seen) -> None:
        self.http, self.fake, self.seen, self.url = http, fake, seen, serving.url
        opened = http.post(f"{serving.url}/rollouts", json={}, headers={"authorization": f"Bearer {ADMIN}"}).json()
        self.rollout_id, self.key = opened["rollout_id"], opened["agent_key"]
        self.base_url, self.openai_base_url = opened["base_url"], opened["openai_base_url"]
        self.anthropic_base_url = opened["anthropic_base_url"]
        seen.agent_keys.append(self.key)

    def post(self, what: str, url: str, body: bytes, *, key: str = "", keeps: bool = False) -> bytes:
        """Send a request with secrets all around; what comes back is looked through unless it is an answer."""
        headers = {
            "authorization": f"Bearer {key or self.key}", "cookie": f"session={COOKIE}", "x-secret": HEADER,
            "proxy-authorization": f"Basic {PROXY}", "content-type": "application/json",
        }  # fmt: skip
        mark = "&" if "?" in url else "?"
        heard, head = b"", b""
        with self.http.stream("POST", f"{url}{mark}token={QUERY}&key={WRONG}", content=body, headers=headers) as answer:
            head = str(answer.headers).encode()
            try:
                for piece in answer.iter_raw():
                    heard += piece
            except httpx.RemoteProtocolError:
                pass
        self.seen.outside[f"{what}: headers"] = head
        if not keeps:
            self.seen.outside[f"{what}: body"] = heard
        return heard


def _talk(agent: Agent, speaker: Any, fakes: Any) -> None:
    name = speaker.name
    for stream in (False, True):
        url = speaker.url(agent, stream)
        said = speaker.body(f"{SAID} {stream}", stream=stream)
        heard = agent.post(f"{name} answer {stream}", url, said, keeps=True)
        # A stream tells it in pieces.
        assert stream or SAID.encode() in heard
        for fault in ("ERROR_500", "HTML", "RESET", "HALF_BODY", "BUSY_429"):
            if fault in fakes.Fault.__members__:
                agent.fake.faults.append(fakes.Fault[fault])
                agent.post(f"{name} {fault} {stream}", url, speaker.body(f"{SAID} {fault}", stream=stream), keeps=True)
                agent.fake.faults.clear()
        agent.fake.api_key, kept = f"{ENGINE}-changed", agent.fake.api_key
        agent.post(f"{name} engine's refusal {stream}", url, speaker.body(f"{SAID} refused", stream=stream))
        agent.fake.api_key = kept
        agent.post(f"{name} wrong key {stream}", url, said, key=WRONG)
        agent.post(f"{name} admin key {stream}", url, said, key=ADMIN)
        for damage in (said[:-9], b"\xff" + said, said.replace(b'":', b'_":', 1), b"[" * 100_000):
            agent.post(f"{name} damaged {len(damage)} {stream}", url, damage)
    _leave_in_mid_answer(agent, speaker)


def _leave_in_mid_answer(agent: Agent, speaker: Any) -> None:
    agent.fake.token_delay_s = 0.05
    body = speaker.body(f"{SAID} left", stream=True)
    headers = {"authorization": f"Bearer {agent.key}", "content-type": "application/json", "cookie": COOKIE}
    with agent.http.stream("POST", speaker.url(agent, True), content=body, headers=headers) as answer:
        next(answer.iter_raw(), b"")
    agent.fake.token_delay_s = 0.0


def _operate(http: httpx.Client, serving: Serving, seen: Seen) -> None:
    """Everything that operators and readers are told, and what those are told who may not know."""
    listed = http.get(f"{serving.url}/rollouts", headers={"authorization": f"Bearer {READ}"}).json()["rollouts"]
    for key in (ADMIN, OLD_ADMIN, READ, WRONG, ""):
        headers = {"authorization": f"Bearer {key}", "cookie": COOKIE} if key else {}
        for path in (
            "/healthz",
            "/metrics",
            "/rollouts",
            "/policy",
            f"/rollouts/{listed[0]['rollout_id']}",
            "/nothing",
        ):
            seen.answered(f"{path} as {key[:12]}", http.get(serving.url + path, headers=headers))
        for path in ("trajectory", "drift"):
            answer = http.get(f"{serving.url}/rollouts/{listed[0]['rollout_id']}/{path}", headers=headers)
            seen.records[f"{path} as {key[:12]}"] = str(answer.headers).encode() + answer.read()
    for each in listed:
        answer = http.post(
            f"{serving.url}/rollouts/{each['rollout_id']}/finish",
            json={"reward": 1.0},
            headers={"authorization": f"Bearer {OLD_ADMIN}"},
            timeout=120,
        )
        assert answer.status_code == 200
        seen.answered(f"finish {each['rollout_id']}", answer)


def _export(store: Path, folder: Path, seen: Seen) -> None:
    folder.mkdir()
    for command in (
        ["export", str(store), "-o", str(folder / "a.jsonl")],
        ["export", str(store), "-o", str(folder / "a.parquet")],
        ["drift", str(store), "--json"],
        ["store", "check", str(store)],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "turnstile.cli", *command], capture_output=True, timeout=300, check=False
        )
        seen.outside[f"turnstile {command[0]}: stderr"] = done.stderr
        seen.records[f"turnstile {command[0]}: stdout"] = done.stdout
    for name, told in files_below(folder).items():
        seen.records[f"export {name}"] = gzip.decompress(told) if name.endswith(".gz") else told
    assert SAID.encode() in seen.records["export a.jsonl"]


def test_the_search_finds_a_secret_in_each_of_its_forms() -> None:
    secret = 'a"b/c'
    for written in (b'x a"b/c', b"?key=a%22b%2Fc&", b'"a\\"b/c"'):
        assert found(secret, {"here": written, "there": b"nothing"}) == ["here"]
