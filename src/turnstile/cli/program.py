"""How this program was called, so that what it tells people to type next works where they stand."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

NAME = "turnstile"


def program_name() -> str:
    """What to type to call this program again: its name if that is found on PATH, else its path from here."""
    called = Path(sys.argv[0])
    if called.parts[-3:] == ("turnstile", "cli", "__main__.py"):
        return f"{_from_here(Path(sys.executable))} -m turnstile.cli"
    if called.name != NAME:
        return NAME
    found = shutil.which(NAME)
    return NAME if found and Path(found).resolve() == called.resolve() else _from_here(called)


def _from_here(path: Path) -> str:
    absolute, here = path.absolute(), Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(absolute)
