"""How the program tells people to call it again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from turnstile.cli.program import program_name


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed script in an environment below the working directory, which is not on PATH."""
    script = tmp_path / ".venv" / "bin" / "turnstile"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return script


@pytest.mark.parametrize("called", [".venv/bin/turnstile", "{}/.venv/bin/turnstile"])
def test_a_script_that_is_not_on_path_is_called_by_its_path_from_here(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str
) -> None:
    monkeypatch.setattr(sys, "argv", [called.format(tmp_path), "demo"])
    assert program_name() == ".venv/bin/turnstile"


def test_a_script_elsewhere_is_called_by_its_whole_path(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.chdir("/usr")
    assert program_name() == str(script)


def test_a_script_on_path_is_called_by_its_name(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert program_name() == "turnstile"


def test_a_module_is_called_with_the_interpreter_that_ran_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    monkeypatch.setattr(sys, "argv", ["/somewhere/turnstile/cli/__main__.py"])
    assert program_name() == f"{sys.executable.removeprefix('/')} -m turnstile.cli"


@pytest.mark.parametrize("program", ["/usr/bin/pytest", "/somewhere/pytest/__main__.py"])
def test_in_another_program_it_has_its_own_name(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    assert program_name() == "turnstile"
