"""A harness that cannot be had: why is said once when it is fetched, and again where its tests are skipped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NPM = """#!/bin/sh
echo 'npm error request to a registry failed, reason: the line is dead' >&2
echo 'npm error A complete log of this run can be found in: a file' >&2
exit 1
"""


def _ran(cache: Path, path: str, *words: str) -> tuple[int, str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PATH": path}
    done = subprocess.run(
        [sys.executable, *words], stdout=subprocess.PIPE, text=True, env=environment, cwd=HERE, check=False
    )
    return done.returncode, done.stdout


def test_the_reason_why_a_harness_cannot_be_had_is_said_and_its_run_is_left_out_with_it(tmp_path: Path) -> None:
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(NPM)
    npm.chmod(0o755)
    reason = "could not be installed: npm error request to a registry failed, reason: the line is dead"

    status, said = _ran(tmp_path, f"{npm.parent}:{os.environ['PATH']}", "install.py", "codex")
    assert (status, said.splitlines()[-1]) == (1, f"codex-0.171.0: {reason}")

    _, said = _ran(tmp_path, os.environ["PATH"], "run.py", "--json", "--only", "codex 0.171.0")
    how = "python tests/harnesses/install.py codex: about 424 MB"
    assert json.loads(said) == {"harness": "codex 0.171.0", "left_out": f"{reason} ({how})"}


def test_without_npm_that_is_the_reason(tmp_path: Path) -> None:
    status, said = _ran(tmp_path, "/nowhere", "install.py", "codex")
    assert status == 1
    assert said.splitlines()[-1].endswith("No such file or directory: 'npm'")
