"""The habits of CONTRIBUTING.md that a program can check."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "turnstile"
MODULES = sorted(SOURCE.rglob("*.py"))
MODULE_LINES = 400
FUNCTION_LINES = 50


def _name(module: Path) -> str:
    return str(module.relative_to(SOURCE))


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_a_module_is_about_one_thing_and_stays_under_400_lines(module: Path) -> None:
    assert len(module.read_text().splitlines()) <= MODULE_LINES


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_a_function_stays_under_50_lines(module: Path) -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    long = [
        f"{node.name} ({node.end_lineno - node.lineno + 1} lines)"
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, functions) and node.end_lineno and node.end_lineno - node.lineno >= _allowed(module)
    ]
    assert long == []


def _allowed(module: Path) -> int:
    # A command's function is mostly the list of its options, which is its documentation; so is `turnstile.serve`.
    if _name(module) in ("cli/serve.py", "server/local.py"):
        return 4 * FUNCTION_LINES
    return 2 * FUNCTION_LINES if module.parent.name == "cli" else FUNCTION_LINES


@pytest.mark.parametrize("module", [each for each in MODULES if each.stem not in ("__init__", "base")], ids=_name)
def test_a_module_has_its_tests_at_the_mirrored_path(module: Path) -> None:
    mirrored = ROOT / "tests" / module.relative_to(SOURCE).parent / f"test_{module.stem}.py"
    assert mirrored.is_file(), f"write {mirrored.relative_to(ROOT)}"


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    assert [_name(module) for module in MODULES if re.search(r"(^|_)(utils?|helpers?|misc|common)$", module.stem)] == []


def test_nothing_is_printed_but_by_the_command_line() -> None:
    printing = [
        _name(module)
        for module in MODULES
        if module.parent.name != "cli" and re.search(r"(?<![\w.])print\(", module.read_text())
    ]
    assert printing in ([], ["engines/embedded_child.py"])


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: the tracked files are not known")
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


def test_no_tracked_file_names_a_machine_or_a_registry() -> None:
    # Written in pieces so that this line does not find itself.
    forbidden = re.compile(
        "|".join([r"(?<![\w.])/wo" + "rk/", r"/tm" + r"p/scr", "py" + r"pi\.org", "npm" + r"js\.(com|org)"])
    )
    found = [
        f"{path.relative_to(ROOT)}: {hit[0]}"
        for path in _tracked()
        if path.is_file() and path.suffix not in (".png", ".gguf")
        if (hit := forbidden.search(path.read_text(encoding="utf-8", errors="ignore")))
    ]
    assert found == []
