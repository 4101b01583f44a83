from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from turnstile.templates.files import ModelFilesError, StopSource, StopToken
from turnstile.templates.gguf import Metadata, metadata_of, model_of, tokenizer_files
from turnstile.templates.tokenizer import Tokenizer

PackageFile = Callable[[str, str], Path]

SERVER = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port, params.n_ctx, params.n_gpu_layers, params.warmup = 0, 512, 0, False
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
"""


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def texts(*values: str) -> bytes:
    return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))


def numbers(*values: int) -> bytes:
    return struct.pack(f"<IIQ{len(values)}i", 9, 5, len(values), *values)


def gguf(version: int = 3, **pairs: bytes) -> bytes:
    written = b"".join(text(key.replace("__", ".")) + value for key, value in pairs.items())
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(pairs)) + written


def string(value: str) -> bytes:
    return struct.pack("<I", 8) + text(value)


def integer(value: int) -> bytes:
    return struct.pack("<II", 4, value)


VOCABULARY: dict[str, bytes] = {
    "general__architecture": string("llama"),
    "general__name": string("Tiny"),
    "llama__context_length": integer(64),
    "tokenizer__ggml__model": string("gpt2"),
    "tokenizer__ggml__pre": string("gpt-2"),
    "tokenizer__ggml__tokens": texts("a", "b", "ab", "<|end|>", "<tool>", "<|return|>", "<|call|>"),
    "tokenizer__ggml__token_type": numbers(1, 1, 1, 3, 4, 1, 3),
    "tokenizer__ggml__merges": texts("a b"),
    "tokenizer__ggml__bos_token_id": integer(3),
    "tokenizer__ggml__eos_token_id": integer(5),
    "tokenizer__chat_template": string("{{ messages }}"),
}


def test_a_gguf_gives_tokenizer_template_stops_and_what_the_model_is() -> None:
    model = model_of(memoryview(gguf(**VOCABULARY)))
    tokenizer = Tokenizer.from_json(model.files.tokenizer_json)
    assert (model.architecture, model.name, model.context_length) == ("llama", "Tiny", 64)
    assert (model.files.chat_template, dict(model.files.special_tokens)) == (
        "{{ messages }}",
        {"bos_token": "<|end|>", "eos_token": "<|return|>"},
    )
    assert tokenizer.encode("ab<tool>a<|return|>").tolist() == [2, 4, 0, 5]
    assert [tokenizer.is_special(token_id) for token_id in range(7)] == [False, False, False, True, False, True, True]


def test_answers_end_where_llama_cpp_ends_them_by_id_and_by_text() -> None:
    # With <|return|> and <|call|> in the vocabulary, <|end|> closes a message and not an answer.
    assert tokenizer_files(gguf(**VOCABULARY)).stop_tokens == (
        StopToken(5, StopSource.GGUF),
        StopToken(6, StopSource.ENGINE_RULE),
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tokenizer__ggml__model": string("llama")}, "of kind `llama`"),
        ({"tokenizer__ggml__pre": string("superbpe")}, "splits text as `superbpe`"),
    ],
)
def test_a_vocabulary_that_is_not_known_is_refused_by_name_with_the_way_round(
    changes: dict[str, bytes], said: str
) -> None:
    with pytest.raises(ModelFilesError) as raised:
        tokenizer_files(gguf(**{**VOCABULARY, **changes}))
    assert said in raised.value.problem
    assert "`--tokenizer DIR`" in raised.value.remedy


@pytest.mark.parametrize("length", range(0, len(gguf(**VOCABULARY)), 13))
def test_a_file_that_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(ModelFilesError):
        tokenizer_files(gguf(**VOCABULARY)[:length])


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"PK\x03\x04" + bytes(64),
        gguf(version=1, **VOCABULARY),
        gguf(x=struct.pack("<I", 99)),
        gguf(x=struct.pack("<IIQ", 9, 4, 2**61)),
        gguf(x=struct.pack("<IIQ", 9, 8, 2**61)),
        gguf(x=struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 50),
        gguf(x=struct.pack("<IQ", 8, 2**63)),
    ],
)
def test_a_file_that_is_no_gguf_or_lies_about_lengths_is_refused(damaged: bytes) -> None:
    with pytest.raises(ModelFilesError):
        tokenizer_files(damaged)


def test_entries_are_read_by_kind_and_missing_ones_are_empty() -> None:
    metadata = metadata_of(gguf(a=string("x"), b=integer(3), c=numbers(1, 2), d=texts("p", "q")))
    assert metadata == Metadata({"a": "x", "b": 3, "c": [1, 2], "d": ["p", "q"]})
    assert (metadata.text("b"), metadata.integer("a"), metadata.texts("a"), metadata.numbers("none")) == (
        "",
        None,
        [],
        [],
    )


@pytest.mark.families
@pytest.mark.parametrize("name", ["llama-bpe", "qwen2", "qwen35", "gpt-2", "starcoder", "refact", "command-r"])
def test_ids_equal_the_test_vectors_of_llama_cpp(package_file: PackageFile, name: str) -> None:
    file, inputs, outputs = (package_file("llama-cpp", f"ggml-vocab-{name}.gguf{end}") for end in ("", ".inp", ".out"))
    tokenizer = Tokenizer.from_json(tokenizer_files(file.read_bytes()).tokenizer_json)
    asked = inputs.read_bytes().decode().split("\n__ggml_vocab_test__\n")
    expected = [[int(token_id) for token_id in line.split()] for line in outputs.read_text().split("\n")]
    pairs = list(zip(asked, expected, strict=False))
    assert len(pairs) > 40
    assert [tokenizer.encode(asked).tolist() for asked, _ in pairs] == [expected for _, expected in pairs]


@pytest.fixture(scope="module")
def smollm2(package_file: PackageFile) -> Path:
    return package_file("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="module")
def ask(smollm2: Path) -> Iterator[Callable[[str, dict[str, Any]], dict[str, Any]]]:
    command = [sys.executable, "-c", SERVER, str(smollm2)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def ask(path: str, body: dict[str, Any]) -> dict[str, Any]:
            request = urllib.request.Request(
                address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            with opener.open(request, timeout=30) as reply:
                return json.load(reply)

        yield ask
        server.kill()


@pytest.mark.families
@pytest.mark.engine
def test_ids_texts_and_stops_of_smollm2_equal_those_of_a_running_llama_cpp(
    smollm2: Path, ask: Callable[[str, dict[str, Any]], dict[str, Any]]
) -> None:
    model = model_of(smollm2.read_bytes())
    tokenizer = Tokenizer.from_json(model.files.tokenizer_json)
    pieces = [
        *"abZ 019\n\t.,'<|>é☃😀中½²\u00a0\ufe0f\u200b(){}",
        "<|im_end|>",
        "<file_sep>",
        "'ll",
        "  ",
        "\r\n",
        "ing",
    ]
    draw = random.Random(7)
    for _ in range(150):
        asked = "".join(draw.choices(pieces, k=draw.randint(0, 40)))
        assert tokenizer.encode(asked).tolist() == ask("/tokenize", {"content": asked})["tokens"], asked
    for _ in range(50):
        ids = [draw.randrange(tokenizer.size) for _ in range(8)]
        told = ask("/detokenize", {"tokens": ids})["content"]
        assert b"".join(map(tokenizer.token_bytes, ids)).decode("utf-8", "replace") == told
    assert (model.name, model.context_length) == ("Smollm2 135M 8k Lc100K Mix1 Ep2", 8192)
    stops = {int(stop.token) for stop in model.files.stop_tokens}
    for token_id in range(6):
        forced = {"prompt": [1], "n_predict": 2, "logit_bias": [[token_id, 1000]], "return_tokens": True}
        assert (ask("/completion", forced)["stop_type"] == "eos") == (token_id in stops), token_id
