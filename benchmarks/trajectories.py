"""What it costs to export, check and convert trajectories: MB of ids a second, peak memory, bytes a token on disk.

    python benchmarks/trajectories.py [--sequences N] [--tokens T] [--turns N] [--full] [--keep FOLDER]

Rollouts of one sequence each, a third of it sampled. Ids are drawn by Zipf's law over 151,936 of them, so that they
compress about as text does; log-probabilities are mostly near 0. Each step runs in a process of its own, so that its
peak memory is its own. `export` folds the records, assembles and writes Parquet; making the records up is not counted.
All times are CPU times. `--full` is 100,000 sequences of 4,096 ids: some minutes, 1 GB on the disk. Numbers are
printed, never asserted.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path

import orjson
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from turnstile.conversation import Message, ReplyFinish, Role, Sampling, Text, Usage
from turnstile.generation import BridgeKind, Draw, Finish, Head, LogprobsMode, NodeRef, Root, Spliced
from turnstile.history.forest import Forest
from turnstile.journal import (
    CallStarted,
    Record,
    RolloutFinished,
    RolloutOpened,
    RolloutStatus,
    SampledChoice,
    TurnCommitted,
)
from turnstile.reasons import RootReason
from turnstile.tokens import IdRun, LogprobRun, SegmentKind, tile
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.converters.conversion import conversion_of
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.files import open_writer, read
from turnstile.trajectory.validate import FileCheck

VOCABULARY = 151_936
STOP = 151_645
POOL = 4_000_000
GROUP = 8
HEADER = 5
"""Scaffold ids of a turn."""
NOW = datetime(2026, 12, 1, tzinfo=UTC)
HEAD = Head("head", "model", "0" * 64, VOCABULARY, "1" * 64, "{}", ())
IDS_COLUMN = "sequences.list.element.token_ids.list.element"
LOGPROBS_COLUMN = "sequences.list.element.logprobs.list.element"


class Material:
    """Ids and numbers to make rollouts of."""

    def __init__(self) -> None:
        self._random = random.Random(7)
        names = list(range(VOCABULARY))
        self._random.shuffle(names)
        frequencies = list(accumulate(1 / (rank + 2.7) for rank in range(VOCABULARY)))
        self._ids = array("i", self._random.choices(names, cum_weights=frequencies, k=POOL))
        draws = (self._random.expovariate(1.0) for _ in range(POOL))
        self._logprobs = array("f", [0.0 if draw < 0.1 else -(draw**3) / 2 for draw in draws])

    def ids(self, count: int) -> IdRun:
        start = self._random.randrange(POOL - count)
        return IdRun(self._ids[start : start + count].tobytes())

    def logprobs(self, count: int) -> LogprobRun:
        start = self._random.randrange(POOL - count)
        return LogprobRun(self._logprobs[start : start + count].tobytes())

    def reward(self) -> float:
        return float(self._random.random() < 0.4)

    def records(self, number: int, tokens: int, turns: int) -> Iterator[Record]:
        """One finished rollout."""
        name, said = f"rollout-{number:06}", tokens // turns
        sampled = said // 3
        yield RolloutOpened(rollout_id=name, attempt=1, opened_at=NOW, group_id=f"group-{number // GROUP}")
        parent, held = None, IdRun()
        for turn in range(turns):
            added, answer = self.ids(said - sampled), self.ids(sampled - 1) + IdRun.of([STOP])
            prompt = held + added
            at = NOW + timedelta(seconds=2 * turn)
            opening = SegmentKind.PROMPT if parent is None else SegmentKind.OBSERVATION
            yield CallStarted(
                rollout_id=name,
                call_id=f"call-{turn}",
                started_at=at,
                dialect="openai.chat",
                head=HEAD.fingerprint,
                new_head=HEAD if parent is None else None,
                engine="vllm",
                engine_version="1",
                parent=parent,
                held_length=len(held),
                added_A=added,
                added_segments=tile([(len(added) - HEADER, opening), (HEADER, SegmentKind.SCAFFOLD)]),
                prompt_sha256=prompt.sha256(),
                history=Root(RootReason.FIRST_CALL) if parent is None else Spliced(BridgeKind.SENTINEL),
                covered_M=0,
                new_M=(Message(Role.USER, (Text(f"{number} {turn} " + "x" * 4 * len(added)),)),),
                sampling=Sampling(),
                draw=Draw(stop_ids=frozenset({STOP})),
                body_digest=str(turn),
            )
            choice = SampledChoice(
                choice=0,
                ids_S=answer,
                logprobs_S=self.logprobs(len(answer)),
                message=Message(Role.ASSISTANT, (Text("y" * 4 * sampled),)),
                reply_finish=ReplyFinish.STOP,
                finish=Finish.STOP,
                engine_finish_reason="stop",
                usage=Usage(len(prompt), len(answer)),
                logprobs_mode=LogprobsMode.PROCESSED,
                logprobs_temperature=1.0,
                policy_min=7,
                policy_max=7,
            )
            yield TurnCommitted(name, f"call-{turn}", at + timedelta(seconds=1), (choice,))
            parent, held = NodeRef(f"call-{turn}"), prompt + answer
        finished = NOW + timedelta(seconds=2 * turns)
        yield RolloutFinished(name, finished, RolloutStatus.COMPLETED, self.reward())


def export(file: Path, sizes: argparse.Namespace) -> dict[str, float]:
    """Records into Parquet; the time that making them up takes is left out."""
    material, spent_s, tokens = Material(), 0.0, 0
    with open_writer(file) as writer:
        for number in range(sizes.sequences):
            records = list(material.records(number, sizes.tokens, sizes.turns))
            start_s = time.process_time()
            rollout = assemble(Forest.of(records))
            writer.write(rollout)
            spent_s += time.process_time() - start_s
            tokens += sum(len(sequence.token_ids) for sequence in rollout.sequences)
    return {"cpu_s": spent_s, "tokens": tokens, **_bytes_a_token(file, tokens)}


def _bytes_a_token(file: Path, tokens: int) -> dict[str, float]:
    """What a prompt token takes, and a sampled one: its id and its log-probability; all else is shared by all."""
    ids = logprobs = sampled = 0
    with pq.ParquetFile(file) as columns:
        for at in range(columns.metadata.num_row_groups):
            group = columns.metadata.row_group(at)
            for number in range(group.num_columns):
                column = group.column(number)
                ids += column.total_compressed_size * (column.path_in_schema == IDS_COLUMN)
                if column.path_in_schema == LOGPROBS_COLUMN:
                    logprobs += column.total_compressed_size
                    sampled += column.num_values
    shared = (file.stat().st_size - ids - logprobs) / tokens
    prompt = ids / tokens + shared
    return {"file_bytes": file.stat().st_size, "prompt": prompt, "sampled": prompt + logprobs / sampled}


def validate(file: Path, sizes: argparse.Namespace) -> dict[str, float]:
    """Every rule on every rollout."""
    check = FileCheck(file)
    start_s = time.process_time()
    errors = sum(violation.code.startswith("E") for violation in check.violations())
    spent_s = time.process_time() - start_s
    if errors or check.rollouts != sizes.sequences:
        raise SystemExit(f"{errors} errors in {check.rollouts} rollouts")
    return {"cpu_s": spent_s}


def convert(file: Path, sizes: argparse.Namespace) -> dict[str, float]:
    """Samples for TRL, each as the line of JSON that would be written."""
    conversion = conversion_of(lambda: read(file), "trl", Options())
    start_s = time.process_time()
    written = sum(len(orjson.dumps(converted.sample)) for converted in conversion)
    spent_s = time.process_time() - start_s
    if conversion.report.samples != sizes.sequences:
        raise SystemExit(f"{conversion.report.samples} samples")
    return {"cpu_s": spent_s, "json_bytes": written}


STEPS: dict[str, Callable[[Path, argparse.Namespace], dict[str, float]]] = {
    "export": export,
    "validate": validate,
    "convert": convert,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=2_000)
    parser.add_argument("--tokens", type=int, default=4_096)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--full", action="store_true", help="100,000 sequences")
    parser.add_argument("--keep", type=Path, help="folder to leave the file in")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    sizes = parser.parse_args()
    if sizes.full:
        sizes.sequences = 100_000
    return sizes


def _in_a_process(step: str, file: Path, sizes: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, "--step", step, "--file", str(file)]
    for name in ("sequences", "tokens", "turns"):
        command += [f"--{name}", str(getattr(sizes, name))]
    figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    print(f"{step}: {figures['cpu_s']:.0f} s of CPU, {figures['peak_mb']:.0f} MB", file=sys.stderr)
    return figures


def main() -> None:
    sizes = _arguments()
    if sizes.step:
        figures = STEPS[sizes.step](sizes.file, sizes)
        figures["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(figures))
        return
    with tempfile.TemporaryDirectory() as temporary:
        file = (sizes.keep or Path(temporary)) / "rollouts.parquet"
        found = {step: _in_a_process(step, file, sizes) for step in STEPS}
    made = found["export"]
    ids_mb = made["tokens"] * 4 / 1e6
    table = Table(title=f"{sizes.sequences} sequences of {sizes.tokens} ids: {ids_mb:.0f} MB", title_justify="left")
    for heading in ("", "MB of ids a second", "CPU s", "peak memory MB"):
        table.add_column(heading, justify="right" if heading else "left")
    for step, figures in found.items():
        rate = f"{ids_mb / figures['cpu_s']:.1f}"
        table.add_row(step, rate, f"{figures['cpu_s']:.1f}", f"{figures['peak_mb']:.0f}")
    Console().print(table)
    print(f"file: {made['file_bytes'] / 1e6:.0f} MB;", end=" ")
    print(f"{made['prompt']:.2f} bytes a prompt token, {made['sampled']:.2f} a sampled one")


if __name__ == "__main__":
    main()
