"""`python -m turnstile.cli`: a user's mistake is a sentence and an exit code, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from turnstile import __version__


def turnstile(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "turnstile.cli", *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)


def test_without_a_command_the_commands_are_listed() -> None:
    told = turnstile()
    assert all(command in told.stdout + told.stderr for command in ("serve", "demo", "export", "validate", "drift"))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["export", "STORE", "-o", "x.jsonl"], 1, "turnstile: "),
        (["drift", __file__], 2, "--tokenizer"),
        (["serve", "--engine", "http://127.0.0.1:9", "--store", "STORE", "--host", "0.0.0.0"], 2, "--admin-key"),
        (["serve", "--engine", "http://127.0.0.1:9", "--store", "STORE"], 2, "--tokenizer"),
        (
            ["serve", "--engine", "http://127.0.0.1:9", "--store", "STORE", "--tokenizer", "MODEL", "--port", "0"],
            1,
            "127.0.0.1:9",
        ),
        (["serve", "--engine", "embeded", "--store", "STORE"], 2, "`embedded`"),
        (["serve", "--store", "STORE"], 2, "--engine"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_remedy(
    arguments: list[str], code: int, words: str, tmp_path: Path, tools_folder: Path
) -> None:
    places = {"STORE": str(tmp_path / "store"), "MODEL": str(tools_folder)}
    told = turnstile(*(places.get(each, each) for each in arguments))
    assert (told.returncode, told.stdout) == (code, "")
    assert words in told.stderr
    assert "Traceback" not in told.stderr
    assert ".." not in told.stderr
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("command", ["drift STORE", "drift STORE --json", "validate FILE"])
def test_a_reader_that_goes_away_is_exit_code_141_and_no_complaint(command: str, store: Path, tmp_path: Path) -> None:
    prose = tmp_path / "prose.jsonl"
    prose.write_text("no rollout\n" * 20)
    command = command.replace("STORE", str(store)).replace("FILE", str(prose))
    # The pipe's reading end is closed before the first byte, so that no write can win the race.
    script = f"set -o pipefail; (sleep 0.1; {sys.executable} -m turnstile.cli {command}) | :"
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (141, "", "")


def test_the_version_is_told() -> None:
    assert turnstile("--version").stdout == f"turnstile {__version__}\n"
