"""Make the environments of real trainers, each in a folder of its own below the user's cache; what is there stays.

python tests/trainers/install.py [NAME ...]     those named; all of them without one

One that cannot be made does not keep the others from being made: why is said, and kept for `why_not`. Exit 1 then.
Two that run at once make each environment once: the second waits.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from environments import ENVIRONMENTS, Environment

LIMIT_S = 1500.0
"""For one environment."""
REASON_CHARS = 300
QUIET_S = 20.0
"""Between two lines of progress where no terminal shows them."""


def folder(environment: Environment) -> Path:
    """Where an environment lies, or would lie."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "turnstile" / "trainers" / environment.name


def python(environment: Environment) -> Path:
    """Its interpreter."""
    return folder(environment) / "bin" / "python"


def _stamp(environment: Environment) -> str:
    """What an environment of these requirements is marked with, for this version of Python."""
    version = ".".join(map(str, sys.version_info[:2]))
    return hashlib.sha256("\n".join((version, *environment.requirements)).encode()).hexdigest()


def _mark(environment: Environment) -> Path:
    return folder(environment) / "requirements.sha256"


def is_installed(environment: Environment) -> bool:
    """Whether it is there, whole, and of the requirements of today."""
    mark = _mark(environment)
    return mark.is_file() and mark.read_text() == _stamp(environment)


def why_not(environment: Environment) -> str:
    """Why an environment is not there, and what makes it."""
    reason = _beside(environment, "reason")
    why = reason.read_text().strip() if reason.is_file() else "not installed"
    return f"{why} (python tests/trainers/install.py {environment.name}: about {environment.size_mb} MB)"


def _beside(environment: Environment, suffix: str) -> Path:
    return folder(environment).with_name(f"{environment.name}.{suffix}")


@contextmanager
def _alone(environment: Environment) -> Generator[None]:
    lock = _beside(environment, "lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def try_to_install(environment: Environment, show: Callable[[str], None]) -> str:
    """Make an environment unless it is there; the reason, in a line, where it cannot be made, else nothing."""
    with _alone(environment):
        if is_installed(environment):
            return ""
        reason = _beside(environment, "reason")
        try:
            _install(environment, show)
        except (OSError, subprocess.SubprocessError) as failed:
            reason.write_text(f"could not be installed: {_told(failed)}\n")
            return why_not(environment)
        reason.unlink(missing_ok=True)
        return ""


def _told(failed: Exception) -> str:
    lines = [line.strip() for line in (getattr(failed, "output", None) or str(failed)).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return [str(failed), *lines, *errors][-1][:REASON_CHARS]


def _install(environment: Environment, show: Callable[[str], None]) -> None:
    place = folder(environment)
    # What is there and of other requirements is brought up to date; what has no pip is half of one.
    is_new = not (place / "bin" / "pip").is_file()
    try:
        if is_new:
            shutil.rmtree(place, ignore_errors=True)
            venv.create(place, with_pip=True)
        _pip([str(python(environment)), "-m", "pip", "install", "--no-compile", *environment.requirements], show)
        _mark(environment).write_text(_stamp(environment))
    except BaseException:
        if is_new:
            shutil.rmtree(place, ignore_errors=True)
        raise


def _pip(words: list[str], show: Callable[[str], None]) -> None:
    """Run pip, and tell how far it is. Raises: CalledProcessError with all that it said, TimeoutExpired."""
    started = time.monotonic()
    said: list[str] = []
    process = subprocess.Popen(
        [*words, "--progress-bar", "off"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if line.startswith(("Collecting", "Downloading", "Installing")):
                show(f"{line.strip()[:70]} ({time.monotonic() - started:.0f} s)")
            if time.monotonic() - started > LIMIT_S:
                process.kill()
                raise subprocess.TimeoutExpired(words[:4], LIMIT_S)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, words[:4], output="".join(said))


class _Shown:
    """Lines of progress: each on a terminal, over the last one; elsewhere one in a while."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last = 0.0

    def __call__(self, line: str) -> None:
        if sys.stdout.isatty():
            print(f"\r\033[K{self._name}: {line}", end="", flush=True)
        elif time.monotonic() - self._last > QUIET_S or line.startswith("Installing"):
            self._last = time.monotonic()
            print(f"{self._name}: {line}", flush=True)


def main() -> None:
    names = sys.argv[1:]
    strangers = sorted(set(names) - {each.name for each in ENVIRONMENTS})
    if strangers:
        sys.exit(f"No environment `{strangers[0]}`; there are {', '.join(each.name for each in ENVIRONMENTS)}")
    failed = False
    for environment in [each for each in ENVIRONMENTS if not names or each.name in names]:
        there = is_installed(environment)
        print(f"{environment.name}: {'is there' if there else f'installing, about {environment.size_mb} MB'}")
        sys.stdout.flush()
        started = time.monotonic()
        reason = "" if there else try_to_install(environment, _Shown(environment.name))
        if reason:
            failed = True
        if not there:
            outcome = reason or f"made in {time.monotonic() - started:.0f} s: {python(environment)}"
            print(f"{chr(10) if sys.stdout.isatty() else ''}{environment.name}: {outcome}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
