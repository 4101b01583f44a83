"""The lines of a page as they stand, on a file of rollouts; says what they made."""

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
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "rollouts.parquet", [decode_line(json.dumps(each).encode()) for each in said["rollouts"]])
        os.chdir(folder)
        names: dict[str, Any] = {}
        exec(compile(said["block"], "page", "exec"), names)
        os.chdir("/")
    samples = names["samples"]
    print(json.dumps({"count": len(samples), "kind": type(samples[0]).__name__}))


main()
