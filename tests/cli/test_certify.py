"""`turnstile certify`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstile.errors import CallerError
from turnstile.templates.certificate import Certificate, CertificateClass, PluginOutcome

pytestmark = pytest.mark.families


@pytest.fixture
def run(run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Calls `turnstile` with a cache of its own; families lie in the user's."""

    def run_apart(*arguments: object) -> Any:
        with monkeypatch.context() as environment:
            environment.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
            return run(*arguments)

    return run_apart


@pytest.fixture
def folder(family: Callable[[str], Path]) -> Path:
    return family("smollm2")


@pytest.fixture
def certified(run: Callable[..., Any], folder: Path, tmp_path: Path) -> Callable[..., Any]:
    """`turnstile certify` with a template of this text."""

    def certified(source: str, *options: str) -> Any:
        (tmp_path / "template.jinja").write_text(source, encoding="utf-8")
        return run("certify", folder, "--template", tmp_path / "template.jinja", *options)

    return certified


@pytest.mark.parametrize(("family_name", "code"), [("smollm2", 0), ("qwen3", 0), ("llama3.1", 3)])
def test_the_exit_code_is_the_class(
    run: Callable[..., Any], family: Callable[[str], Path], family_name: str, code: int
) -> None:
    told = run("certify", family(family_name))
    assert (told.exit_code, told.stderr) == (code, "")
    assert "an answer, then a user message, no tools" in told.stdout
    assert "For a training run" in told.stdout


def test_a_page_says_what_is_lost_rewritten_and_limited(run: Callable[..., Any], family: Callable[[str], Path]) -> None:
    page = " ".join(run("certify", family("gpt-oss")).stdout.split())
    for said in (
        "partial Some requests, which are named below, are not spliced",
        "Answers end with <|return|>, <|call|>",
        "A system message behind the first answer is dropped. -> Send reminders as user messages",
        "with thinking: the template rewrites from turn 4 on",
        "calls of two tools, then both results refused The template leaves out the last words",
    ):
        assert said in page


def test_a_page_says_what_becomes_of_earlier_answers_in_a_rewritten_history(
    run: Callable[..., Any], family: Callable[[str], Path]
) -> None:
    for family_name, said in (
        ("smollm2", "they keep the ids that were sampled"),
        (
            "deepseek-v3",
            "without tools they keep the ids that were sampled; with tools they are rendered again as text",
        ),
    ):
        page = " ".join(run("certify", family(family_name)).stdout.split())
        assert f"Earlier answers, when the client changes its history: {said}" in page


def test_a_program_gets_the_certificate_whole(run: Callable[..., Any], folder: Path) -> None:
    told = run("certify", folder, "--json", "--kwargs", '{"a": 1}')
    certificate = msgspec.json.decode(told.stdout, type=Certificate)
    assert (certificate.certificate_class, certificate.kwargs) == (CertificateClass.EXACT, '{"a": 1}')
    assert run("certify", folder, "--json", "--kwargs", '{"a": 1}').stdout == told.stdout


def test_a_stop_token_may_be_named(run: Callable[..., Any], folder: Path) -> None:
    told = run("certify", folder, "--json", "--stop", "<|im_end|>", "--stop", "<|endoftext|>")
    stops = msgspec.json.decode(told.stdout, type=Certificate).stop_tokens
    assert [(each.text, each.inferred) for each in stops] == [("<|endoftext|>", False), ("<|im_end|>", False)]
    unknown = run("certify", folder, "--stop", "two words")
    assert isinstance(unknown.exception, CallerError)
    assert "no token 'two words'" in str(unknown.exception)


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("{% if %}", "cannot be compiled"),
        ("{{ raise_exception('never') }}", "never"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps"),
        ("x" * 10_000_000, "more than 1048576"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ cycler.__init__.__globals__.os.popen('id').read() }}", "unsafe"),
        ("{% include '/etc/passwd' %}", "loader"),
        ("{{ messages.append(1) }}", "sentinel_lost"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "template_error"),
        ("{{ 'x' * 10 ** 12 }}", "template_error"),
    ],
    ids=["syntax", "raises", "endless", "huge", "escape", "globals", "include", "mutates", "recurses", "swells"],
)
def test_a_broken_template_is_not_certified_and_shows_no_traceback(
    certified: Callable[..., Any], source: str, word: str
) -> None:
    told = certified(source)
    assert (told.exit_code, type(told.exception)) == (4, SystemExit)
    page = " ".join(told.stdout.split())
    assert page.startswith("refused Nothing is spliced")
    assert word in page
    assert "Traceback" not in told.output


def test_a_missing_file_or_folder_is_bad_usage(run: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    assert run("certify", folder, "--template", tmp_path / "nowhere").exit_code == 2
    assert isinstance(run("certify", tmp_path / "nowhere").exception, CallerError)
    assert isinstance(run("certify", tmp_path).exception, CallerError)
    (tmp_path / "empty").touch()
    assert "is empty" in str(run("certify", folder, "--template", tmp_path / "empty").exception)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    assert isinstance(run("certify", folder, "--template", tmp_path / "bytes").exception, CallerError)
    for wrong in ("[]", "{enable_thinking: false}"):
        assert str(run("certify", folder, "--kwargs", wrong).exception).startswith(
            "`--kwargs` is no JSON object. Give it"
        )


def test_a_tokenizer_that_cannot_be_read_is_not_certified(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    told = run("certify", tmp_path)
    assert told.exit_code == 4
    assert "tokenizer.json cannot be read" in told.stdout


def test_a_folder_without_a_template_is_not_certified(run: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    told = run("certify", tmp_path)
    assert told.exit_code == 4
    assert "no chat template" in told.stdout


def test_other_packages_bridges_are_compared_on_demand(run: Callable[..., Any], family: Callable[[str], Path]) -> None:
    pytest.importorskip("renderers", reason="the package `renderers` is not installed")
    told = run("certify", family("llama3.1"), "--plugins").stdout
    assert "renderers, bridge llama-3: agrees (same 20, different 0, it refuses 0)" in " ".join(told.split())
    found = msgspec.json.decode(run("certify", family("smollm2"), "--plugins", "--json").stdout, type=Certificate)
    assert [(each.plugin, each.outcome) for each in found.plugins] == [("renderers", PluginOutcome.NOT_APPLICABLE)]
