"""Engines to test against: the real small one in a child process, and a fake that is only wire."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import turnstile.engines.embedded
from turnstile.engines import LlamaServer, SglangServer, TokenServer, VllmServer, cache_home
from turnstile.engines.embedded_child import ChildReport, ChildSettings
from turnstile.engines.smollm import MODEL_NAME, model_file
from turnstile.generation import Draw, Head, Prompt, Root
from turnstile.reasons import RootReason
from turnstile.templates.gguf import tokenizer_files
from turnstile.templates.tokenizer import Tokenizer
from turnstile.tokens import IdRun

_FAKES = Path(__file__).parents[1] / "fakes"
_HEAD = Head("fingerprint", "model", "tokenizer", 0, "template", "{}", ())


class ByteVocabulary:
    """Ids 0 and 1 are control tokens, id 2 + b is the byte b, and id 258 is two bytes of an emoji."""

    def __init__(self):
        self.rows = [b"<s>", b"</s>", *(bytes([byte]) for byte in range(256)), b"\xf0\x9f", b"ha "]

    @property
    def size(self):
        return len(self.rows)

    def token_bytes(self, token_id):
        return self.rows[token_id]

    def is_special(self, token_id):
        return token_id < 2

    def spell(self, text):
        return [2 + byte for byte in text.encode()]


def prompt_of(ids):
    return Prompt(_HEAD, None, IdRun(), IdRun.of(ids), (), Root(RootReason.FIRST_CALL))


class Answered:
    """What an engine gave for one draw."""

    def __init__(self, generation, deltas):
        self.generation = generation
        self.deltas = deltas
        self.ids = generation.ids_S.tolist()
        self.logprobs = generation.logprobs_S.tolist()
        self.notes = {note.code.value: note.detail for note in generation.notes}


@pytest.fixture
def ask():
    """Sample once: `await ask(engine, ids, draw)`."""

    async def _ask(engine, ids, draw=None):
        deltas = []

        async def emit(delta):
            deltas.append(delta)

        generation = await engine.generate(prompt_of(ids), draw or Draw(), emit)
        return Answered(generation, deltas)

    return _ask


@pytest.fixture
def prompt():
    """A prompt of ids."""
    return prompt_of


@pytest.fixture
def vocabulary():
    return ByteVocabulary()


@pytest.fixture
async def fake(fakes, vocabulary):
    """A fake server that is running, with its `url`."""
    server = fakes.LlamaFake(vocabulary.rows, special=frozenset({0, 1}), eos=frozenset({1}))
    async with server.serving() as url:
        server.url = url
        yield server


@pytest.fixture
async def engine(fake, vocabulary):
    """An engine on the fake server."""
    server = await LlamaServer.open(fake.url)
    engine = server.speaking(vocabulary, seeds=lambda: 7)
    yield engine
    await engine.close()


@pytest.fixture
def sglang_fakes(load_fake):
    """The module of the fake SGLang server."""
    return load_fake("sglang_fake")


@pytest.fixture
async def sglang_fake(sglang_fakes, vocabulary):
    """A fake SGLang that is running, with its `url`; it shows images as id 0."""
    server = sglang_fakes.SglangFake(vocabulary.rows, special=frozenset({0, 1}), eos=frozenset({1}), placeholder_id=0)
    async with server.serving() as url:
        server.url = url
        yield server


@pytest.fixture
async def sglang(sglang_fake, vocabulary):
    """An engine on the fake SGLang."""
    server = await SglangServer.open(sglang_fake.url)
    engine = server.speaking(vocabulary, seeds=lambda: 7)
    yield engine
    await engine.close()


@pytest.fixture
async def vllm_fake(vllm_fakes, vocabulary):
    """A fake vLLM that is running, with its `url`; it shows images as id 0, and reads each byte as an id."""
    server = vllm_fakes.VllmFake(vocabulary.rows, special=frozenset({0, 1}), eos=frozenset({1}))
    server.encode = vocabulary.spell
    server.placeholder_id = 0
    async with server.serving() as url:
        server.url = url
        yield server


@pytest.fixture
async def vllm(vllm_fake, vocabulary):
    """An engine on the fake vLLM, whose probes are over."""
    server = await VllmServer.open(vllm_fake.url)
    vllm_fake.requests.clear()
    engine = server.speaking(vocabulary, seeds=lambda: 7)
    yield engine
    await engine.close()


@pytest.fixture
def token_fakes(load_fake):
    """The module of the fake token server."""
    return load_fake("token_server_fake")


@pytest.fixture
async def token_fake(token_fakes, vocabulary):
    """A fake token server that is running, with its `url`."""
    server = token_fakes.TokenServerFake(vocabulary.rows, special=frozenset({0, 1}), eos=frozenset({1}))
    async with server.serving() as url:
        server.url = url
        yield server


@pytest.fixture
async def token_engine(token_fake, vocabulary):
    """An engine on the fake token server."""
    engine = (await TokenServer.open(token_fake.url)).speaking(vocabulary, seeds=lambda: 7)
    yield engine
    await engine.close()


class RealServer:
    """A real llama.cpp server with SmolLM2."""

    def __init__(self, url, api_key, model_path):
        self.url = url
        self.api_key = api_key
        self.model_path = model_path


@pytest.fixture(scope="session")
def smollm():
    """The gguf, fetched on first use."""
    return asyncio.run(model_file(cache_home()))


@pytest.fixture(scope="session")
def smollm_tokenizer(smollm):
    return Tokenizer.from_json(tokenizer_files(smollm.read_bytes()).tokenizer_json)


@pytest.fixture(scope="session")
def real_server(smollm):
    settings = ChildSettings(str(smollm), MODEL_NAME, secrets.token_hex(8), context=256, slots=2, threads=1)
    program = Path(turnstile.engines.embedded.__file__).with_name("embedded_child.py")
    with subprocess.Popen(
        [sys.executable, "-P", str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        child.stdin.write(msgspec.json.encode(settings) + b"\n")
        child.stdin.flush()
        report = msgspec.json.decode(child.stdout.readline(), type=ChildReport)
        assert report.url, report.error
        yield RealServer(report.url, settings.api_key, smollm)
        child.stdin.close()
        child.wait(10)


@pytest.fixture
async def real_engine(real_server, smollm_tokenizer):
    server = await LlamaServer.open(real_server.url, real_server.api_key)
    engine = server.speaking(smollm_tokenizer)
    engine.wire = server.wire
    yield engine
    await engine.close()


@pytest.fixture(scope="session")
def seeing_url(family, tmp_path_factory):
    """The address of a real llama.cpp that is shown images; what it says of them makes no sense."""
    program = [sys.executable, str(_FAKES / "tiny_vision.py"), str(family("qwen2.5-vl") / "tokenizer.json")]
    folder = str(tmp_path_factory.mktemp("tiny-vision"))
    with subprocess.Popen(
        [*program, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        address = child.stdout.readline().strip()
        assert address
        yield address
        child.stdin.close()
        child.wait(10)


@pytest.fixture
async def seeing_engine(seeing_url, family, tokenizers_of):
    """llama.cpp with a tiny Qwen2.5-VL of random weights."""
    server = await LlamaServer.open(seeing_url)
    engine = server.speaking(tokenizers_of(family("qwen2.5-vl")), seeds=lambda: 7)
    engine.wire = server.wire
    engine.sight = server.sight
    yield engine
    await engine.close()


@pytest.fixture
def is_alive():
    """Whether a process runs (a zombie does not)."""

    def _is_alive(pid):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"

    return _is_alive
