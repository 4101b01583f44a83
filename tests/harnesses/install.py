"""Install harnesses, each in a folder of its own below the user's cache; what is there is not touched.

python tests/harnesses/install.py [WORD ...]     those whose name contains a word; all of them without one

One that cannot be had does not keep the others from being installed: why is said, and kept for `why_not`. Exit 1 then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from catalogue import HARNESSES, Package

LIMIT_S = 600.0
"""For one package."""
REASON_CHARS = 300


def folder(package: Package) -> Path:
    """Where a package lies, or would lie."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "turnstile" / "harnesses" / package.folder


def is_installed(package: Package) -> bool:
    return folder(package).is_dir()


def why_not(package: Package) -> str:
    """Why a package is not there."""
    reason = _reason(package)
    return reason.read_text().strip() if reason.is_file() else "not installed"


def _reason(package: Package) -> Path:
    return folder(package).with_name(f"{package.folder}.reason")


def try_to_install(package: Package) -> str:
    """Fetch a package unless it is there; the reason, in a line, where it cannot be had, else nothing."""
    reason = _reason(package)
    try:
        install(package)
    except (OSError, subprocess.SubprocessError) as failed:
        said = getattr(failed, "stderr", None) or str(failed)
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        # npm and pip say it like this, and go on with where their logs are.
        told = [line for line in lines if "reason:" in line or line.startswith("ERROR:")]
        reason.write_text(f"could not be installed: {[*lines, *told][-1][:REASON_CHARS]}\n")
        return why_not(package)
    reason.unlink(missing_ok=True)
    return ""


def _fetch(words: list[str | Path], place: Path) -> None:
    subprocess.run(words, cwd=place, check=True, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)


def install(package: Package) -> Path:
    """Fetch a package unless it is there. Raises: SubprocessError, OSError without npm or room."""
    place = folder(package)
    if place.is_dir():
        return place
    unfinished = place.with_name(f"{place.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    match package.manager:
        case "npm":
            _fetch(["npm", "install", "--no-fund", "--no-audit", *package.requirements], unfinished)
            unfinished.rename(place)
        case _:
            # An environment holds its own address, so it is made where it stays.
            unfinished.rmdir()
            try:
                venv.create(place, with_pip=True)
                pip = [place / "bin" / "pip", "install", "--quiet", "--no-compile"]
                _fetch([*pip, *package.requirements], place)
            except BaseException:
                shutil.rmtree(place, ignore_errors=True)
                raise
    return place


def main() -> None:
    words = sys.argv[1:]
    packages = {
        each.package.folder: each.package for each in HARNESSES if not words or any(word in each.name for word in words)
    }
    failed = False
    for package in packages.values():
        state = "is there" if is_installed(package) else f"installing, about {package.size_mb} MB"
        print(f"{package.folder}: {state}", flush=True)
        if reason := try_to_install(package):
            failed = True
            print(f"{package.folder}: {reason}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
