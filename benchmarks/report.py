"""One table a load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from load import Cell
from rich.console import Console
from rich.table import Table


class Figures(Protocol):
    """What a row needs to know."""

    cpu_ms: float | None
    opening_cpu_ms: float | None
    p50_ms: float
    p99_ms: float
    resident_bytes_per_id: float | None
    outcomes: dict[str, int]


def print_table(cell: Cell, measured: Mapping[str, Figures]) -> None:
    """Print a load's figures; latencies are beyond those of the engine itself, ratios against the relay."""
    calls = cell.rollouts * cell.turns
    table = Table(title=f"{cell.held} held ids, {cell.clients} clients, {calls} calls", title_justify="left")
    table.add_column("")
    for heading in (
        "CPU ms a call",
        "of the relay's",
        "first call ms",
        "added p50 ms",
        "added p99 ms",
        "bytes a held id",
    ):
        table.add_column(heading, justify="right")
    table.add_column("answers", overflow="fold")
    engine, relay = measured.get("engine"), measured.get("relay")
    for name, figures in measured.items():
        ratio = figures.cpu_ms / relay.cpu_ms if relay and relay.cpu_ms and figures.cpu_ms is not None else None
        latencies = (figures.p50_ms, figures.p99_ms)
        if engine and figures is not engine:
            latencies = (figures.p50_ms - engine.p50_ms, figures.p99_ms - engine.p99_ms)
        table.add_row(
            name if figures is not engine else "engine itself (latency in full)",
            _number(figures.cpu_ms, 2),
            _number(ratio, 1) + ("x" if ratio is not None else ""),
            _number(figures.opening_cpu_ms, 1),
            *(_number(latency, 1) for latency in latencies),
            _number(figures.resident_bytes_per_id, 1),
            ", ".join(f"{count} {what}" for what, count in figures.outcomes.items()),
        )
    Console(width=None if Console().is_terminal else 160).print(table)


def _number(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:.{places}f}"
