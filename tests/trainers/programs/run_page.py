"""The lines of pages as they stand, on a file of rollouts; says what they made."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from turnstile.trajectory.files import write
from turnstile.trajectory.format import decode_line


def main() -> None:
    said = json.load(sys.stdin)
    made: dict[str, list[Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "rollouts.parquet", [decode_line(json.dumps(each).encode()) for each in said["rollouts"]])
        os.chdir(folder)
        for page, block in said["blocks"].items():
            names: dict[str, Any] = {}
            exec(compile(block, page, "exec"), names)
            made[page] = [len(names["samples"]), type(names["samples"][0]).__name__]
        os.chdir("/")
    print(json.dumps(made))


main()
