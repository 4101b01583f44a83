"""Run the harnesses end to end through Turnstile, and print a table.

    python tests/harnesses/run.py [--faults] [--keep DIR] [WORD ...]

Each run has a network namespace with loopback only where the system permits one, a fresh home, and an end in time;
two run at once. A harness that is not installed is left out, with a line that says how to have it. With WORDs, only
harnesses whose name contains one of them. Exit 1 if a promise was not kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

from catalogue import HARNESSES, Harness, named
from ending import end_on_signals, kill_descendants
from install import is_installed, why_not

from engine import Trouble

HERE = Path(__file__).parent
FETCH = HERE.parent / "families" / "fetch.py"
FAMILY = "qwen3"
AT_ONCE = 2
START_S = 60.0
"""For the engine, Turnstile and the judging of a run, beside the harness's own time."""
TO_END_S = 10.0
"""For a run that is told to."""
Run = tuple[Harness, Trouble]
COLUMNS = {
    "harness": 32,
    "dialect": 11,
    "trouble": 12,
    "requests": 9,
    "auxiliary": 10,
    "failed": 7,
    "roots": 6,
    "forks": 28,
    "seconds": 8,
    "outcome": 24,
    "notes": 0,
}
"""With their widths in characters."""
HEADING = "".join(name.ljust(width) for name, width in COLUMNS.items())


def namespace() -> list[str]:
    """What to put before a command so that it has no network but loopback; empty if the system does not permit it."""
    for words in (["unshare", "-n"], ["unshare", "-r", "-n"]):
        if (
            shutil.which("unshare")
            and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
        ):
            return words
    return []


def model_folder() -> Path:
    """The tokenizer and template of the played model, fetched on first use."""
    done = subprocess.run([sys.executable, str(FETCH), FAMILY], stdout=subprocess.PIPE, text=True, check=True)
    return Path(json.loads(done.stdout)["folder"]) / FAMILY


def one_run(harness: Harness, trouble: Trouble, model: Path, before: list[str], keep: Path | None) -> dict[str, Any]:
    """The report of one run; one that ends without a report says so as its only problem."""
    with tempfile.TemporaryDirectory(prefix="turnstile-harness-") as scratch:
        at = Path(scratch) if keep is None else keep / f"{harness.name} {trouble}".replace(" ", "_")
        shutil.rmtree(at, ignore_errors=True)
        at.mkdir(parents=True, exist_ok=True)
        words = [*before, sys.executable, str(HERE / "inside.py"), harness.name, trouble.value, str(at), str(model)]
        log = at / "log.txt"
        try:
            return json.loads(said(words, log, harness.limit_s + START_S).splitlines()[-1])
        except subprocess.TimeoutExpired:
            problem = "the run did not end"
        except subprocess.CalledProcessError:
            problem = f"the run failed: {log.read_text().strip().splitlines()[-1:]}"
    nothing = dict.fromkeys(("requests", "auxiliary", "failed", "roots", "seconds"), 0)
    return {
        **nothing,
        "harness": harness.name,
        "dialect": harness.dialect,
        "trouble": trouble.value,
        "forks": [],
        "notes": {},
        "finished": False,
        "problems": [problem],
    }


def said(words: list[str], log: Path, limit_s: float) -> str:
    """What a run writes; one that takes too long is asked to end first, because it kills what it started.

    Raises: TimeoutExpired, CalledProcessError.
    """
    with (
        log.open("w") as errors,
        subprocess.Popen(words, stdout=PIPE, stderr=errors, text=True, stdin=DEVNULL) as process,
    ):
        try:
            written, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TO_END_S)
            process.kill()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words)
    return written


def reports(runs: list[Run], model: Path, before: list[str], keep: Path | None) -> Generator[dict[str, Any]]:
    """Of each run, in order. If this program is told to end, whatever runs is killed first."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting = [pool.submit(one_run, *run, model, before, keep) for run in runs]
        try:
            yield from (each.result() for each in waiting)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(each.done() for each in waiting):
                kill_descendants()
                time.sleep(0.02)
            kill_descendants()


def outcome(report: dict[str, Any]) -> str:
    done = "repaired" if report["finished"] else "not repaired"
    return f"{done}, PROBLEMS" if report["problems"] else done


def line(report: dict[str, Any]) -> str:
    noted = [f"{code} x{times}" for code, times in report["notes"].items()]
    forks = [f"{reason} x{times}" for reason, times in Counter(report["forks"]).items()]
    cells = {**report, "forks": " ".join(forks) or "0", "outcome": outcome(report), "notes": ", ".join(noted)}
    return "".join(str(cells[name]).ljust(width) for name, width in COLUMNS.items())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Real harnesses through Turnstile.")
    parser.add_argument("words", nargs="*", help="parts of harnesses' names")
    parser.add_argument("--only", help="one harness, by its whole name")
    parser.add_argument("--faults", action="store_true", help="also with each trouble at the engine")
    parser.add_argument("--trouble", type=Trouble, default=Trouble.NONE, help="one trouble at the engine")
    parser.add_argument("--keep", type=Path, help="leave each run's files there")
    parser.add_argument("--json", action="store_true", help="one JSON object a run, instead of a table")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list[Harness]:
    if options.only:
        return [named(options.only)]
    return [each for each in HARNESSES if not options.words or any(word in each.name for word in options.words)]


def show(report: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(report), flush=True)
    elif "left_out" in report:
        print(f"{report['harness']}: left out, {report['left_out']}", flush=True)
    else:
        print(line(report), flush=True)


def main() -> None:
    options = arguments()
    end_on_signals()
    before = namespace()
    if not before:
        print("This system permits no network namespace: the runs see whatever network there is.", file=sys.stderr)
    for each in chosen(options):
        if not is_installed(each.package):
            how = f"python tests/harnesses/install.py {each.name.split()[0]}"
            reason = f"{why_not(each.package)} ({how}: about {each.package.size_mb} MB)"
            show({"harness": each.name, "left_out": reason}, options)
    runs = [
        (each, trouble)
        for each in chosen(options)
        if is_installed(each.package)
        for trouble in (Trouble if options.faults else (options.trouble,))
    ]
    if not runs:
        return
    if not options.json:
        print(HEADING, flush=True)
    model = model_folder()
    problems: list[str] = []
    with contextlib.closing(reports(runs, model, before, options.keep)) as found:
        for report in found:
            show(report, options)
            problems += [f"{report['harness']} ({report['trouble']}): {each}" for each in report["problems"]]
    if not options.json:
        print("".join(f"PROBLEM {problem}\n" for problem in problems), end="")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
