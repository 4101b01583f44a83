"""Several seeds one after the other, each in a process and a folder of its own, then the picture.

python -m loop.seeds text/text.toml --out runs/text --seeds 1 2 3 [--history rerendered] [--set TABLE.NAME=VALUE]

What is finished stays; what was interrupted goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from loop.metrics import FILE, read_metrics
from loop.processes import variables
from loop.settings import read_settings
from loop.warm import model_folder


def is_finished(folder: Path) -> bool:
    """Whether a run came to its end."""
    return (folder / FILE).is_file() and any(line["kind"] == "end" for line in read_metrics(folder))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--history", default="exact")
    parser.add_argument("--set", action="append", default=[], metavar="TABLE.NAME=VALUE")
    said = parser.parse_args()
    changes = [word for each in said.set for word in ("--set", each)]
    settings = read_settings(said.settings, dict(each.partition("=")[::2] for each in said.set))
    environment = variables(settings.train.threads)
    model_folder(settings.model)
    folders = [said.out / f"{said.history}-{seed}" for seed in said.seeds]
    for seed, folder in zip(said.seeds, folders, strict=True):
        if not is_finished(folder):
            command = [sys.executable, "-m", "loop.train", str(said.settings), "--out", str(folder)]
            command += ["--seed", str(seed), "--history", said.history, "--resume", *changes]
            subprocess.run(command, check=True, env=environment)
    picture = said.out / f"{said.history}.png"
    words = [str(picture), "--title", said.settings.stem, "--run", said.history, *map(str, folders)]
    subprocess.run([sys.executable, "-m", "loop.plot", *words], check=True, env=environment)
    print(picture)


if __name__ == "__main__":
    main()
