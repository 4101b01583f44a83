"""Environments that cannot be made say why, once when they are made and again where tests are skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def _ran(cache: Path, *words: str, **more: str) -> tuple[int, list[str]]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), **more}
    done = subprocess.run(
        [sys.executable, str(HERE / "install.py"), *words], capture_output=True, text=True, env=environment, check=False
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_an_environment_that_cannot_be_made_leaves_nothing_but_the_reason(tmp_path: Path) -> None:
    # An index of which nothing can be had: an empty folder.
    unreachable = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    status, said = _ran(tmp_path, "verl", **unreachable)
    assert status == 1
    assert said[-1].startswith("verl: could not be installed: ERROR: No matching distribution found for torch")
    assert said[-1].endswith("(python tests/trainers/install.py verl: about 1600 MB)")
    left = sorted(each.name for each in (tmp_path / "turnstile" / "trainers").iterdir())
    assert left == ["verl.lock", "verl.reason"]


def test_an_environment_of_other_requirements_is_not_taken_for_todays(tmp_path: Path) -> None:
    place = tmp_path / "turnstile" / "trainers" / "trl"
    place.mkdir(parents=True)
    (place / "requirements.sha256").write_text("of yesterday")
    unreachable = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    status, said = _ran(tmp_path, "trl", **unreachable)
    assert (status, said[0]) == (1, "trl: installing, about 1600 MB")


def test_a_name_that_is_no_environment_is_refused_with_those_that_are(tmp_path: Path) -> None:
    assert _ran(tmp_path, "trlx") == (1, ["No environment `trlx`; there are trl, verl, cookbook"])
