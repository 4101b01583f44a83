"""The model that a run begins with: a folder that is given, or one that a script makes once and that is kept."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from loop.processes import variables
from loop.settings import ModelSettings

HERE = Path(__file__).parents[1]


def model_folder(settings: ModelSettings) -> Path:
    """Its folder. Two runs that begin at once make it once: the second waits."""
    if settings.folder:
        return Path(settings.folder)
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = caches / "turnstile" / "rl-models"
    home.mkdir(parents=True, exist_ok=True)
    folder = home / f"{settings.warm_start.replace('.', '-')}-{inputs_sha256(settings)[:16]}"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            command = [sys.executable, "-m", settings.warm_start, str(folder), str(settings.seed), *settings.arguments]
            subprocess.run(command, check=True, env=variables(threads=1))
    return folder


def inputs_sha256(settings: ModelSettings) -> str:
    """Of all that decides what a warm start makes."""
    digest = hashlib.sha256(f"{settings.warm_start} {settings.seed} {settings.arguments}".encode())
    for name in settings.inputs:
        digest.update(name.encode() + b"\0" + (HERE / name).read_bytes())
    return digest.hexdigest()
