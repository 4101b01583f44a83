"""Tests that really run, in a process that can hurt nobody by accident."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from text.sandbox import Sandbox

TESTS = "from solution import f\n\n\ndef test_f():\n    assert f(2) == 4, f'f(2) is {f(2)}, not 4'\n"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(1) as started:
        yield started


def ran(sandbox: Sandbox, folder: Path, source: str) -> str:
    (folder / "solution.py").write_text(source)
    return sandbox.run(folder, TESTS).text


def test_a_right_function_passes(sandbox: Sandbox, tmp_path: Path) -> None:
    assert ran(sandbox, tmp_path, "def f(x): return x + x") == "PASSED: 1"


def test_a_wrong_function_fails_with_the_real_words_of_the_assertion(sandbox: Sandbox, tmp_path: Path) -> None:
    assert ran(sandbox, tmp_path, "def f(x): return x") == "FAILED: AssertionError: f(2) is 2, not 4"


def test_a_file_that_is_no_python_says_so(sandbox: Sandbox, tmp_path: Path) -> None:
    assert ran(sandbox, tmp_path, "def f(:").startswith("FAILED: SyntaxError")


def test_a_run_never_sees_what_an_earlier_one_imported(sandbox: Sandbox, tmp_path: Path) -> None:
    ran(sandbox, tmp_path, "def f(x): return 4")
    assert ran(sandbox, tmp_path, "def f(x): return 5") == "FAILED: AssertionError: f(2) is 5, not 4"


def test_an_endless_loop_is_stopped(sandbox: Sandbox, tmp_path: Path) -> None:
    assert ran(sandbox, tmp_path, "while True: pass") == "FAILED: stopped after 2 s"


def test_too_much_memory_is_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    assert ran(sandbox, tmp_path, "x = bytearray(2**32)") == "FAILED: MemoryError"


@pytest.mark.parametrize(
    "source",
    [
        "import socket; socket.socket()",
        "import os; os.system('true')",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.kill(os.getppid(), 9)",
        "import os; os.remove('../kept')",
        "open('../written', 'w')",
        "import ctypes; ctypes.CDLL(None)",
    ],
)
def test_what_reaches_out_of_the_folder_is_refused(sandbox: Sandbox, tmp_path: Path, source: str) -> None:
    (tmp_path / "kept").touch()
    (folder := tmp_path / "repository").mkdir()
    assert ran(sandbox, folder, source).startswith("FAILED: PermissionError")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kept", "repository"]


def test_no_connection_is_made(sandbox: Sandbox, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        source = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))"
        assert ran(sandbox, tmp_path, source).startswith("FAILED: PermissionError")
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_child_that_ends_by_itself_is_a_failure(sandbox: Sandbox, tmp_path: Path) -> None:
    assert ran(sandbox, tmp_path, "import os; os._exit(0)") == "FAILED: it crashed"


def test_a_file_without_tests_does_not_pass(sandbox: Sandbox, tmp_path: Path) -> None:
    assert not sandbox.run(tmp_path, "x = 1").passed
