"""What a run says of itself: a JSON line for each step and evaluation, a bar or lines on the screen, TensorBoard."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

FILE = "metrics.jsonl"
SHOWN = ("reward", "score", "turns", "difference_max", "forks", "differing", "tokens_per_s")


class Metrics:
    """Appends to `metrics.jsonl`; behind a checkpoint that a run goes on from, what it said later is dropped."""

    def __init__(self, folder: Path, name: str, steps: int, resumed_at: int | None) -> None:
        """Open the file; `resumed_at`: the step of the checkpoint, None for a new run."""
        self._path = folder / FILE
        self._name = name
        _cut(self._path, resumed_at)
        self._is_terminal = sys.stdout.isatty()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[said]}"),
            console=Console(),
            disable=not self._is_terminal,
        )
        self._task = self._bar.add_task(name, total=steps, completed=resumed_at or 0, said="")
        self._board = _board(folder)

    def __enter__(self) -> Metrics:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if self._board is not None:
            self._board.close()

    def say(self, kind: str, step: int, figures: Mapping[str, Any]) -> None:
        """Keep one line, and show the most of it."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "step": step, **figures}) + "\n")
        said = "  ".join(f"{name} {_short(figures[name])}" for name in SHOWN if name in figures)
        if self._is_terminal:
            self._bar.update(self._task, completed=step, said=f"{kind}: {said}")
        else:
            print(f"{self._name} {kind} {step}: {said}", flush=True)
        if self._board is not None:
            for name, value in figures.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{kind}/{name}", value, step)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All lines of a run."""
    lines = (folder / FILE).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def _cut(path: Path, resumed_at: int | None) -> None:
    if resumed_at is None or not path.exists():
        path.write_text("", encoding="utf-8")
        return
    kept: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue  # the line that the run was killed in
        # Step n is said when it is done; an evaluation of n is made before step n + 1, so it is made again.
        if said["step"] < resumed_at or (said["kind"] == "step" and said["step"] == resumed_at):
            kept.append(line + "\n")
    path.write_text("".join(kept), encoding="utf-8")


def _board(folder: Path) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"))


def _short(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.3f}" if abs(value) < 10 else f"{value:.0f}"
