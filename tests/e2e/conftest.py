"""A real small model behind a real Turnstile, started once for all end-to-end tests."""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgspec
import pytest

import turnstile.engines.embedded_child as embedded_child
from turnstile.client import Client
from turnstile.config import Settings
from turnstile.engines import cache_home, tools_template
from turnstile.engines.smollm import MODEL_NAME, model_file, say_nothing
from turnstile.server.local import serving
from turnstile.templates.gguf import tokenizer_files


class Llama(msgspec.Struct, frozen=True):
    """A real llama.cpp server."""

    url: str
    key: str

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST, with its key."""
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        with urlopen(Request(self.url + path, json.dumps(body).encode(), headers), timeout=60) as answer:
            return json.loads(answer.read())


@pytest.fixture(scope="session")
def by_some_seed() -> Callable[[Callable[[int], Any], Callable[[Any], bool]], Any]:
    """The first answer, of several seeds, that came to its end.

    Which one that is depends on how a processor rounds: a small model may fill any limit with calls or blanks.
    """

    def first(ask: Callable[[int], Any], ended: Callable[[Any], bool]) -> Any:
        return next(answer for answer in map(ask, range(1, 17)) if ended(answer))

    return first


@pytest.fixture(scope="session")
def gguf() -> Path:
    """The packaged SmolLM2-135M."""
    return asyncio.run(model_file(cache_home(), say_nothing))


@pytest.fixture(scope="session")
def llama(gguf: Path) -> Iterator[Llama]:
    """llama.cpp with SmolLM2-135M, in a process of its own."""
    settings = embedded_child.ChildSettings(str(gguf), MODEL_NAME, "engine-key", 4096, 2, 1)
    program = [sys.executable, "-P", embedded_child.__file__]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(msgspec.json.encode(settings) + b"\n")
        child.stdin.flush()
        report = json.loads(child.stdout.readline())
        yield Llama(report["url"], "engine-key")
        child.stdin.close()
        child.wait(timeout=10)


@pytest.fixture(scope="session")
def model_folder(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2's tokenizer with the ChatML template that has tools, as a model folder."""
    folder = tmp_path_factory.mktemp("smollm2")
    with gguf.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        files = tokenizer_files(memoryview(view))
    (folder / "tokenizer.json").write_text(files.tokenizer_json, encoding="utf-8")
    (folder / "chat_template.jinja").write_text(tools_template(), encoding="utf-8")
    config = {"bos_token": files.special_tokens.get("bos_token"), "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


class Tap:
    """Stands between Turnstile and llama.cpp and remembers what passes; it makes the engine echo its prompt."""

    def __init__(self, llama: Llama) -> None:
        self.exchanges: list[tuple[dict[str, Any], dict[str, Any]]] = []
        """(request, answer) of each `/completion`, in order of the answers."""
        self.delay_s = 0.0
        """How long each answer is held back."""
        self.forced: dict[str, Any] = {}
        """Members that every `/completion` is sent with, whatever Turnstile asked."""
        tap = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._pass(None)

            def do_POST(self) -> None:
                self._pass(self.rfile.read(int(self.headers["content-length"])))

            def log_message(self, format: str, *args: object) -> None:
                pass

            def _pass(self, body: bytes | None) -> None:
                asked = json.loads(body) if body else {}
                if "response_fields" in asked:
                    asked["response_fields"] = [*asked["response_fields"], "prompt"]
                    asked |= tap.forced
                    body = json.dumps(asked).encode()
                headers = {"authorization": f"Bearer {llama.key}", "content-type": "application/json"}
                try:
                    with urlopen(Request(llama.url + self.path, body, headers), timeout=60) as answer:
                        status, content = answer.status, answer.read()
                except HTTPError as refused:
                    with refused:
                        status, content = refused.code, refused.read()
                if self.path == "/completion" and status == 200:
                    tap.exchanges.append((asked, json.loads(content)))
                time.sleep(tap.delay_s)
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="session")
def tap(llama: Llama) -> Iterator[Tap]:
    """A witness of every word between Turnstile and the engine."""
    tap = Tap(llama)
    yield tap
    tap.close()


@pytest.fixture
def uncached(tap: Tap) -> Iterator[None]:
    """Makes llama.cpp bit-exact: its numbers depend on how much of a prompt it has in its cache (batch shapes)."""
    tap.forced = {"cache_prompt": False, "id_slot": 0}
    yield
    tap.forced = {}


@pytest.fixture(scope="session")
def start(
    llama: Llama, model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Client]]:
    """Starts a Turnstile over the real llama.cpp, with any setting replaced; it ends with the session."""
    with ExitStack() as stack:

        def start(**changes: object) -> Client:
            plain = Settings(
                engine=llama.url,
                engine_api_key=llama.key,
                model="smol",
                tokenizer=model_folder,
                store=tmp_path_factory.mktemp("store"),
                port=0,
            )
            return stack.enter_context(serving(msgspec.structs.replace(plain, **changes), say_nothing))

        yield start


@pytest.fixture(scope="session")
def turnstile(start: Callable[..., Client], tap: Tap) -> Client:
    """The Turnstile that most tests share; the tap listens between it and the engine."""
    return start(engine=tap.url)


class Serve:
    """`turnstile serve` as a process that can be killed."""

    def __init__(self, options: list[str]) -> None:
        program = [sys.executable, "-m", "turnstile.cli", "serve", "--json", "--port", "0", *options]
        self.process = subprocess.Popen(program, stdout=subprocess.PIPE, env=os.environ.copy())
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Serve]]:
    """Runs the `turnstile serve` command; whatever still runs at the end is killed."""
    running: list[Serve] = []

    def run(*options: str) -> Serve:
        running.append(Serve(list(options)))
        return running[-1]

    yield run
    for each in running:
        if each.process.poll() is None:
            each.kill()
