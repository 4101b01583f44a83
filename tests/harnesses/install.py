"""Install harnesses, each in a folder of its own below the user's cache; what is there is not touched.

python tests/harnesses/install.py [WORD ...]     those whose name contains a word; all of them without one
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from catalogue import HARNESSES, Package


def folder(package: Package) -> Path:
    """Where a package lies, or would lie."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "turnstile" / "harnesses" / package.folder


def is_installed(package: Package) -> bool:
    return folder(package).is_dir()


def install(package: Package) -> Path:
    """Fetch a package unless it is there. Raises: CalledProcessError, FileNotFoundError without npm."""
    place = folder(package)
    if place.is_dir():
        return place
    unfinished = place.with_name(f"{place.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    match package.manager:
        case "npm":
            subprocess.run(
                ["npm", "install", "--no-fund", "--no-audit", *package.requirements], cwd=unfinished, check=True
            )
            unfinished.rename(place)
        case _:
            # An environment holds its own address, so it is made where it stays.
            unfinished.rmdir()
            try:
                venv.create(place, with_pip=True)
                subprocess.run([place / "bin" / "pip", "install", "--quiet", *package.requirements], check=True)
            except BaseException:
                shutil.rmtree(place, ignore_errors=True)
                raise
    return place


def main() -> None:
    words = sys.argv[1:]
    packages = {
        each.package.folder: each.package for each in HARNESSES if not words or any(word in each.name for word in words)
    }
    for package in packages.values():
        state = "is there" if is_installed(package) else f"installing, about {package.size_mb} MB"
        print(f"{package.folder}: {state}", flush=True)
        install(package)


if __name__ == "__main__":
    main()
