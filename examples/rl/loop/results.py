"""The results page's figures, from the metrics files: nobody types a number.

python -m loop.results PAGE NAME --run exact FOLDER FOLDER FOLDER [--run rerendered FOLDER ...]

Rewrites what stands in PAGE between `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
"""

from __future__ import annotations

import argparse
import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.metrics import read_metrics

ENDS = 10
"""First and last evaluations that are compared."""


@dataclass(frozen=True)
class Summary:
    """One run in figures."""

    seed: str
    steps: int
    evaluations: int
    first: float
    """Held-out score before any step."""
    last: float
    early: float
    """Mean of the first ten evaluations."""
    late: float
    greedy: tuple[float, float]
    minutes: float
    difference: float
    """Largest of all steps."""
    exported: int
    counted: int
    forks: int
    rollouts: int
    differing: int
    sampled: int
    wrong: int
    restarts: int


def summarise(folder: Path) -> Summary:
    """Read a run's metrics. Raises: SystemExit if it has too few evaluations to compare its ends."""
    lines = read_metrics(folder)
    steps = [line for line in lines if line["kind"] == "step"]
    evaluations = [line for line in lines if line["kind"] == "evaluation"]
    scores = [line["score"] for line in evaluations]
    if len(scores) < 2:
        raise SystemExit(f"{folder} has {len(scores)} evaluations")
    greedy = [line["greedy_score"] for line in evaluations if "greedy_score" in line]
    ends = min(ENDS, len(scores) // 2)
    total = _totals(steps)
    return Summary(
        seed=folder.name,
        steps=len(steps),
        evaluations=len(scores),
        first=scores[0],
        last=scores[-1],
        early=statistics.fmean(scores[:ends]),
        late=statistics.fmean(scores[-ends:]),
        greedy=(greedy[0], greedy[-1]) if greedy else (0.0, 0.0),
        minutes=(sum(line["wall_s"] for line in steps) + evaluations[-1]["wall_s"]) / 60,
        difference=max((line.get("difference_max", 0.0) for line in steps), default=0.0),
        restarts=sum(line.get("restarts", 0) for line in lines),
        **total,
    )


def _totals(steps: list[dict[str, Any]]) -> dict[str, int]:
    names = {
        "exported": "exported_tokens",
        "counted": "trained_tokens",
        "forks": "forks",
        "rollouts": "rollouts",
        "differing": "differing",
        "sampled": "sampled",
        "wrong": "wrong",
    }
    return {ours: sum(line[theirs] for line in steps) for ours, theirs in names.items()}


def table(runs: dict[str, list[Summary]]) -> str:
    """Two tables in Markdown: how far each run came, and what was checked on the way."""
    rows = [
        "| history | run | steps | evaluations | held-out, first | last | first ten | last ten | greedy | minutes |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, summaries in runs.items():
        rows += [
            f"| {name} | {each.seed} | {each.steps} | {each.evaluations} | {each.first:.2f} | {each.last:.2f} | "
            f"{each.early:.3f} | {each.late:.3f} | {each.greedy[0]:.2f} to {each.greedy[1]:.2f} | {each.minutes:.1f} |"
            for each in summaries
        ]
    rows += ["", *_spreads(runs), ""]
    rows += [
        "| history | run | largest log-prob difference | tokens exported | counted by the loss | forks | "
        "rollouts that text would change | sampled tokens behind the change | restarts |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, summaries in runs.items():
        rows += [
            f"| {name} | {each.seed} | {_difference(name, each)} | {each.exported:,} | {each.counted:,} | "
            f"{each.forks} | "
            f"{each.differing:,} of {each.rollouts:,} ({each.differing / each.rollouts:.0%}) | "
            f"{each.wrong:,} of {each.sampled:,} ({each.wrong / each.sampled:.0%}) | {each.restarts} |"
            for each in summaries
        ]
    return "\n".join(rows)


def _difference(name: str, summary: Summary) -> str:
    # Re-rendered rows have no recorded numbers to compare with.
    return "none recorded" if name == "rerendered" else f"{summary.difference:.1e}"


def _spreads(runs: dict[str, list[Summary]]) -> list[str]:
    said: list[str] = []
    for name, summaries in runs.items():
        gains = [each.late - each.early for each in summaries]
        spread = max(each.late for each in summaries) - min(each.late for each in summaries)
        said.append(
            f"- {name}: smallest gain {min(gains):.3f}, mean {statistics.fmean(gains):.3f}; the last tens of the seeds "
            f"differ by {spread:.3f}; final score {statistics.fmean(each.last for each in summaries):.2f} "
            f"from {statistics.fmean(each.first for each in summaries):.2f}."
        )
    return said


def put(page: str, name: str, text: str) -> str:
    """A page with another text between its marks. Raises: SystemExit if it has none."""
    pattern = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"The page has no <!-- {name}:begin --> and <!-- {name}:end -->")
    return pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("name")
    parser.add_argument("--picture", default="", help="shown above the tables, as the page links it")
    parser.add_argument("--run", nargs="+", action="append", required=True, metavar=("NAME", "FOLDER"))
    said = parser.parse_args()
    runs = {name: [summarise(Path(each)) for each in folders] for name, *folders in said.run}
    picture = f"![Held-out tasks over training steps, all seeds]({said.picture})\n\n" if said.picture else ""
    page = put(said.page.read_text(encoding="utf-8"), said.name, picture + table(runs))
    said.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
