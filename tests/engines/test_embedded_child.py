from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import turnstile.engines.wire
from turnstile.engines.embedded_child import ChildReport, ChildSettings

PROGRAM = Path(turnstile.engines.wire.__file__).with_name("embedded_child.py")


@pytest.mark.engine
def test_a_model_that_cannot_be_loaded_is_reported_on_the_first_line(tmp_path):
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(100))
    settings = ChildSettings(str(damaged), "name", "key", context=64, slots=1, threads=1)
    done = subprocess.run(
        [sys.executable, "-P", str(PROGRAM)],
        input=msgspec.json.encode(settings) + b"\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    report = msgspec.json.decode(done.stdout.splitlines()[0], type=ChildReport)
    assert "cannot be served" in report.error
    assert done.returncode == 1
