"""`turnstile certify` as a process, on what nobody should give it: an exit code, a sentence, a remedy, and an end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

pytestmark = [pytest.mark.families, pytest.mark.timeout(300)]

BOUND_S = 60.0
"""What one check may take on a slow machine, starting Python included."""
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Ran(msgspec.Struct, frozen=True):
    """What a process left."""

    code: int
    out: str
    err: str

    @property
    def page(self) -> str:
        return " ".join(self.out.split())


@pytest.fixture
def certify(tmp_path: Path) -> Callable[..., Ran]:
    """Runs the command with a cache of its own."""
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "COLUMNS": "400"}

    def certify(*arguments: object) -> Ran:
        began = time.monotonic()
        program = [sys.executable, "-m", "turnstile.cli", "certify", *map(str, arguments)]
        done = subprocess.run(
            program, capture_output=True, text=True, env=environment, timeout=2 * BOUND_S, check=False
        )
        assert time.monotonic() - began < BOUND_S
        assert "Traceback" not in done.stdout + done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    return certify


@pytest.fixture
def folder(family: Callable[[str], Path]) -> Path:
    return family("smollm2")


EVERYTHING = os.environ.get("TURNSTILE_FAMILIES") == "all"
"""Whether each of the broken things is given to a process of its own; else one of each kind is."""
BROKEN = {
    "syntax error": "{% for m in messages %}{{ m.content }}",
    "unknown tag": "{% frobnicate %}",
    "endless": "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
    "endless macro": "{% macro m(n) %}{{ m(n + 1) }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "raises": "{{ raise_exception('This model speaks to nobody') }}",
    "ten megabytes": "x" * 10_000_000,
    "forbidden attribute": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "forbidden global": "{{ cycler.__init__.__globals__ }}",
    "forbidden format": "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
    "control bytes": "\x00\x01\x02\x7f{{ messages }}\x1b[2J",
    "deep tags": "{% if messages %}" * 3000 + "x" + "{% endif %}" * 3000,
    "deep brackets": "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}",
    "deep lists": "{{ " + "[" * 3000 + "]" * 3000 + " }}",
    "long sum": "{{ " + "1+" * 20_000 + "1 }}",
    "prints nothing": "{# nothing #}{% for m in messages %}{% endfor %}",
    "same for all": "Hello.",
    "swells": "{{ 'x' * 10 ** 11 }}",
    "doubles": "{% set n = namespace(t='x') %}{% for i in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}{{ n.t }}",
    "huge power": "{{ 9 ** 9 ** 9 }}",
    "divides by zero": "{{ 1 / 0 }}",
}  # fmt: skip


ONE_OF_A_KIND = ("syntax error", "endless", "raises", "forbidden attribute", "deep brackets", "prints nothing")
RUN = BROKEN if EVERYTHING else {name: BROKEN[name] for name in ONE_OF_A_KIND}


@pytest.mark.parametrize("source", RUN.values(), ids=RUN)
def test_a_template_that_cannot_be_used_is_refused_with_a_reason_and_a_remedy(
    certify: Callable[..., Ran], folder: Path, tmp_path: Path, source: str
) -> None:
    (tmp_path / "template.jinja").write_text(source, encoding="utf-8")
    ran = certify(folder, "--template", tmp_path / "template.jinja")
    assert (ran.code, ran.err) == (4, "")
    assert ran.page.startswith("refused Nothing is spliced")
    assert "For a training run" in ran.page
    assert "->" in ran.page
    assert len(ran.out) < 20_000


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\xff\xfe" * 100, "UTF-8 text file"),
        (b"", "is empty"),
    ],
    ids=["binary", "empty"],
)
def test_a_file_that_is_no_template_is_bad_usage(
    certify: Callable[..., Ran], folder: Path, tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "template.jinja").write_bytes(content)
    ran = certify(folder, "--template", tmp_path / "template.jinja")
    assert (ran.code, ran.out) == (2, "")
    assert said in " ".join(ran.err.split())


def test_what_is_not_there_is_bad_usage(certify: Callable[..., Ran], folder: Path, tmp_path: Path) -> None:
    for arguments in ([folder, "--template", tmp_path / "nowhere"], [tmp_path]):
        ran = certify(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.strip()


TOKENIZERS = {
    "empty": b"",
    "no json": b"not json",
    "cut off": b'{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0',
    "other json": b'{"version": "1.0", "hello": [1, 2, 3]}',
    "a list": b"[]",
    "null": b"null",
    "binary": b"\x00\xff\xfe\x89PNG" * 50,
    "deep": b"[" * 200_000,
    "no such model": b'{"version":"1.0","added_tokens":[],"model":{"type":"Quantum","vocab":{}}}',
    "empty vocabulary": b'{"version":"1.0","added_tokens":[],"model":{"type":"BPE","vocab":{},"merges":[]}}',
    "merges of nothing": b'{"version":"1.0","added_tokens":[],"model":{"type":"BPE","vocab":{"a":0},"merges":["b c"]}}',
}  # fmt: skip


RUN_TOKENIZERS = TOKENIZERS if EVERYTHING else {name: TOKENIZERS[name] for name in ("cut off", "deep", "null")}


@pytest.mark.parametrize("content", RUN_TOKENIZERS.values(), ids=RUN_TOKENIZERS)
def test_a_tokenizer_that_cannot_be_used_is_refused_with_a_reason(
    certify: Callable[..., Ran], tmp_path: Path, content: bytes
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "tokenizer.json").write_bytes(content)
    (model / "chat_template.jinja").write_text(CHATML)
    ran = certify(model)
    assert ran.code in (2, 4)
    told = ran.page if ran.code == 4 else " ".join(ran.err.split())
    assert "tokenizer" in told or "stop token" in told
    assert len(told) < 20_000


def test_a_tokenizer_of_another_vocabulary_is_refused_for_the_token_that_it_lacks(
    certify: Callable[..., Ran], family: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "template.jinja").write_text(CHATML)
    ran = certify(family("llama3.1"), "--template", tmp_path / "template.jinja")
    assert (ran.code, ran.err) == (4, "")
    assert "no_terminator" in ran.page


def test_a_broken_configuration_beside_the_tokenizer_is_named(
    certify: Callable[..., Ran], folder: Path, tmp_path: Path
) -> None:
    for name in ("tokenizer.json", "chat_template.jinja"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": ')
    ran = certify(tmp_path)
    assert ran.code in (2, 4)
    assert "tokenizer_config.json" in ran.page + ran.err
