"""Curves of all seeds from the metrics files.

python -m loop.plot OUT.png --title "Coding agent" --run exact FOLDER FOLDER FOLDER [--run rerendered FOLDER ...]

Writes OUT.png and OUT.svg: the held-out score at temperature 1, a thin line a seed, a thick one for their mean.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes

from loop.metrics import read_metrics

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "turnstile"

from matplotlib import pyplot as plt  # noqa: E402 - the backend is chosen first

COLOURS = ("#1a6fb5", "#c2571a", "#5a8f29")
NAMES = {"exact": "through Turnstile", "rerendered": "re-rendered, re-tokenized history"}


@dataclass(frozen=True)
class Curve:
    """One run's evaluations."""

    steps: list[int]
    scores: list[float]


def curve_of(folder: Path, name: str) -> Curve:
    """A figure of a run's evaluations over its steps."""
    said = [line for line in read_metrics(folder) if line["kind"] == "evaluation" and name in line]
    return Curve([line["step"] for line in said], [line[name] for line in said])


def draw(axes: Axes, label: str, colour: str, curves: list[Curve]) -> None:
    """All seeds of one kind of run, and their mean where all of them were evaluated."""
    for curve in curves:
        axes.plot(curve.steps, curve.scores, color=colour, alpha=0.35, linewidth=1)
    shared = sorted(set.intersection(*(set(curve.steps) for curve in curves)))
    means = [statistics.fmean(curve.scores[curve.steps.index(step)] for curve in curves) for step in shared]
    axes.plot(shared, means, color=colour, linewidth=2.5, label=f"{label}, mean of {len(curves)}")


def plot(out: Path, title: str, runs: dict[str, list[Path]], figure_name: str) -> None:
    """Write the picture, as PNG and as SVG."""
    figure, axes = plt.subplots(figsize=(7.2, 4.2), constrained_layout=True)
    for (name, folders), colour in zip(runs.items(), COLOURS, strict=False):
        draw(axes, NAMES.get(name, name), colour, [curve_of(folder, figure_name) for folder in folders])
    axes.set(title=title, xlabel="training step", ylabel="held-out tasks solved", ylim=(0, 1))
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    figure.savefig(out.with_suffix(".png"), dpi=160)
    figure.savefig(out.with_suffix(".svg"), metadata={"Date": None})


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--title", default="")
    parser.add_argument("--figure", default="score", help="of an evaluation: score, reward, greedy_score")
    parser.add_argument("--run", nargs="+", action="append", required=True, metavar=("NAME", "FOLDER"))
    said = parser.parse_args()
    runs = {name: [Path(each) for each in folders] for name, *folders in said.run}
    plot(said.out, said.title, runs, said.figure)


if __name__ == "__main__":
    main()
