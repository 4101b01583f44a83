"""One run of one harness: engine, Turnstile and harness side by side, and what came of it as one JSON object.

    python tests/harnesses/inside.py HARNESS TROUBLE FOLDER

Meant for a network namespace of its own, where loopback is all there is.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from catalogue import Command, Harness, Place, named
from ending import die_with_parent, dying_with_parent, end_on_signals, kill_descendants
from findings import Findings
from install import folder
from played import PlayedModel

from engine import PlayedEngine, Trouble
from turnstile.config import Settings
from turnstile.engines.smollm import say_nothing
from turnstile.server.local import serving
from turnstile.templates.tokenizer import Tokenizer

CALC = "def add(a, b):\n    return a - b\n"
TEST_CALC = "from calc import add\n\nassert add(2, 3) == 5, f'add(2, 3) is {add(2, 3)}'\nprint('1 passed')\n"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def loopback_up() -> None:
    """Bring the namespace's only interface up (ioctl SIOCSIFFLAGS, IFF_UP | IFF_RUNNING; see netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))


def repository(at: Path) -> Path:
    """The task: a function that subtracts, and a test that wants a sum."""
    at.mkdir()
    (at / "calc.py").write_text(CALC)
    (at / "test_calc.py").write_text(TEST_CALC)
    (at / ".gitignore").write_text("__pycache__/\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "begin"]):
        subprocess.run([*git, *words], cwd=at, check=True)
    return at


def started(command: Command, place: Place, limit_s: float, said: Path) -> int | None:
    """Run it to its end or to the limit (then None), with everything that it started."""
    for name, text in command.files.items():
        file = place.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    environment = {"PATH": PATH, "HOME": str(place.home), "TERM": "dumb", "LANG": "C.UTF-8", **command.environment}
    with (
        said.open("wb") as output,
        subprocess.Popen(
            dying_with_parent(command.words),
            cwd=place.repository,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            kill_descendants()


def run(harness: Harness, trouble: Trouble, at: Path, model_folder: Path) -> Findings:
    """Everything once. Files are left in `at`: what the harness said, its home, the store, the trajectory."""
    repo = repository(at / "repo")
    home = at / "home"
    home.mkdir()
    tokenizer = Tokenizer.from_json((model_folder / "tokenizer.json").read_text(encoding="utf-8"))
    engine = PlayedEngine(tokenizer, PlayedModel(harness.hands(repo)), harness.model, trouble)
    with engine.in_thread() as url:
        settings = Settings(engine=url, tokenizer=model_folder, store=at / "store", port=0, model=harness.model)
        with serving(settings, say_nothing) as client:
            handle = client.rollout("harness", agent_name=harness.name)
            place = Place(folder(harness.package), home, repo, f"{client.url}/r/harness", handle.agent_key or "none")
            began = time.monotonic()
            exit_status = started(harness.command(place), place, harness.limit_s, at / "said.txt")
            seconds = time.monotonic() - began
            handle.finish(reward=1.0)
            rollout = handle.trajectory()
    findings = Findings(harness, trouble, engine, rollout, repo, at)
    findings.seconds, findings.exit_status = seconds, exit_status
    return findings


def main() -> None:
    name, trouble, at, model_folder = sys.argv[1:]
    end_on_signals()
    die_with_parent(signal.SIGTERM)
    with contextlib.suppress(PermissionError):
        loopback_up()
    findings = run(named(name), Trouble(trouble), Path(at), Path(model_folder))
    print(json.dumps(asdict(findings.report())), flush=True)


if __name__ == "__main__":
    main()
