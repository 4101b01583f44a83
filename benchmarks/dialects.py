"""What a call costs in each dialect, beside the same call as a chat completion.

    python benchmarks/dialects.py [--quick] [--json FILE] [--rounds N] [--turns N] [--dialects NAME ...]

One server, one stub engine that takes no time, and for each dialect an agent that grows the same conversation: at
every turn each of them makes one call, in an order that moves on, and the CPU time of the server's process is read
around it. So all dialects meet the same machine and the same state of the server. Of the rounds, which are equal, each
turn counts with its median. Beside it stands what of this it took to read the last body, the longest one, measured in
this process. Numbers are printed, never asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import orjson
import uvloop
from agents import Agent, agent_for
from materials import MODEL, Materials
from processes import Server, start_announcing
from rich.console import Console
from rich.table import Table

from turnstile.protocols import DIALECTS
from turnstile.protocols.base import Dialect, WireRequest

HERE = Path(__file__).resolve().parent
HELD = 20_000
"""Ids of a conversation at its last turn, about."""
SAMPLED = 160
_THOUGHT_WORDS = 60
_OPENING_IDS = 2_000
_IDLE_S = 0.01
"""How long the server is left alone before its clock is read: an answer leaves before all of its work is done."""
_READINGS = 101
_NONE = WireRequest(b"", {})


@dataclass
class Costs:
    """What one dialect cost, whole or streamed."""

    dialect: Dialect
    stream: bool
    cpu_ms_of_turns: list[list[float]]
    """For each turn one figure a round."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """How often each history header was answered."""
    last: WireRequest = _NONE
    read_ms: float = 0.0
    """What it takes to understand `last`."""

    @property
    def name(self) -> str:
        return f"{self.dialect.name}, {'streamed' if self.stream else 'whole'}"

    def cpu_ms(self, turns: slice) -> float:
        """A call of these turns, on average."""
        return statistics.fmean(statistics.median(figures) for figures in self.cpu_ms_of_turns[turns])

    def figures(self) -> dict[str, object]:
        """All of it but the request itself."""
        named = {"dialect": self.dialect.name, "stream": self.stream, "body_bytes": len(self.last.body)}
        return {**named, "read_ms": self.read_ms, "cpu_ms": self.cpu_ms_of_turns, "outcomes": self.outcomes}


class Field:
    """The server under test and those who talk to it."""

    def __init__(self, session: aiohttp.ClientSession, server: Server, materials: Materials, turns: int) -> None:
        self._session = session
        self._server = server
        self._task = " ".join(materials.opening(_OPENING_IDS))
        words = _result_words(materials, turns)
        self._results = [materials.prose(words, 1_000 + at) for at in range(turns)]

    async def round(self, number: int, costs: list[Costs]) -> None:
        """Every dialect grows one conversation, all of them side by side."""
        agents = [agent_for(cost.dialect.name)("You are a careful engineer. " * 20, self._task) for cost in costs]
        for turn, result in enumerate(self._results):
            for at in _in_turn(len(agents), turn + number):
                rollout_id = f"{costs[at].dialect.name}-{costs[at].stream}-{number}"
                spent_ms = await self._call(rollout_id, agents[at], costs[at], result)
                costs[at].cpu_ms_of_turns[turn].append(spent_ms)

    async def _call(self, rollout_id: str, agent: Agent, cost: Costs, result: str) -> float:
        body = orjson.dumps(agent.body(stream=cost.stream))
        path = agent.path(stream=cost.stream)
        url = f"{self._server.url}/r/{rollout_id}{path}"
        before_s = self._server.cpu_s()
        async with self._session.post(url, data=body, headers={"content-type": "application/json"}) as response:
            answer = await response.read()
        await asyncio.sleep(_IDLE_S)
        spent_ms = 1e3 * (self._server.cpu_s() - before_s)
        if response.status != 200:
            raise SystemExit(
                f"{cost.dialect.name} was answered {response.status}: {answer[:300].decode(errors='replace')}"
            )
        outcome = response.headers["x-turnstile-history"]
        cost.outcomes[outcome] = cost.outcomes.get(outcome, 0) + 1
        cost.last = WireRequest(body, {}, path.partition("?")[0])
        if cost.stream:
            agent.hear_stream(list(_events(answer)), result)
        else:
            agent.hear(orjson.loads(answer), result)
        return spent_ms


def _result_words(materials: Materials, turns: int) -> int:
    ids_of_hundred = materials.length(materials.prose(100, 1))
    return max(10, 100 * ((HELD - _OPENING_IDS) // max(turns, 40) - SAMPLED) // ids_of_hundred)


def _in_turn(count: int, first: int) -> Iterator[int]:
    return ((first + at) % count for at in range(count))


def _events(stream: bytes) -> Iterator[dict[str, object]]:
    for line in stream.splitlines():
        if line.startswith(b"data: ") and line != b"data: [DONE]":
            yield orjson.loads(line.removeprefix(b"data: "))


async def measure(server: Server, materials: Materials, options: argparse.Namespace) -> list[Costs]:
    """All dialects, whole and streamed."""
    dialects = [dialect for dialect in DIALECTS if not options.dialects or dialect.name in options.dialects]

    def nothing_yet() -> list[Costs]:
        return [Costs(one, stream, [[] for _ in range(options.turns)]) for stream in (False, True) for one in dialects]

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        place = Field(session, server, materials, options.turns)
        # Code and allocator are warm before anything counts.
        await place.round(0, nothing_yet())
        costs = nothing_yet()
        for number in range(1, 1 + options.rounds):
            await place.round(number, costs)
    _time_reading(costs)
    return costs


def _time_reading(costs: list[Costs]) -> None:
    spent_ms: list[list[float]] = [[] for _ in costs]
    for _ in range(_READINGS):
        for cost, figures in zip(costs, spent_ms, strict=True):
            before_s = time.process_time()
            cost.dialect.decode(cost.last)
            figures.append(1e3 * (time.process_time() - before_s))
    for cost, figures in zip(costs, spent_ms, strict=True):
        cost.read_ms = statistics.median(figures)


def print_costs(costs: list[Costs], turns: int) -> None:
    """One table; ratios are over chat completions delivered the same way."""
    table = Table(title=f"{turns} turns, about {HELD} ids at the fortieth", title_justify="left")
    table.add_column("")
    for heading in ("CPU ms a call", "of chat's", "last quarter ms", "of chat's", "reading the last ms", "its kB"):
        table.add_column(heading, justify="right")
    table.add_column("answers", overflow="fold")
    everything, late = slice(None), slice(-max(1, turns // 4), None)
    for cost in costs:
        chat = next((other for other in costs if "chat" in other.dialect.name and other.stream == cost.stream), cost)
        cells: list[str] = []
        for part in (everything, late):
            cells += [f"{cost.cpu_ms(part):.2f}", f"{cost.cpu_ms(part) / chat.cpu_ms(part):.2f}x"]
        answers = ", ".join(f"{count} {what}" for what, count in cost.outcomes.items())
        table.add_row(cost.name, *cells, f"{cost.read_ms:.2f}", f"{len(cost.last.body) / 1000:.0f}", answers)
    Console(width=None if Console().is_terminal else 160).print(table)


def run(options: argparse.Namespace) -> dict[str, object]:
    """Start both servers, measure, and give all figures as one JSON object."""
    with tempfile.TemporaryDirectory(prefix="turnstile-bench-") as name:
        folder = Path(name)
        materials = Materials.make(folder, SAMPLED, _THOUGHT_WORDS)
        stub_command = [sys.executable, str(HERE / "stub_engine.py"), "--folder", name]
        program = str(Path(sys.executable).parent / "turnstile")
        stub = start_announcing(stub_command, folder / "stub.log")
        try:
            engine = ["--engine", stub.url, "--engine-kind", "llamacpp", "--model", MODEL, "--tokenizer", name]
            serve = [program, "serve", *engine, "--store", str(folder / "store"), "--port", "0", "--json"]
            server = start_announcing(serve, folder / "turnstile.log")
            try:
                costs = uvloop.run(measure(server, materials, options))
            finally:
                server.stop()
        finally:
            stub.stop()
    print_costs(costs, options.turns)
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    return {"machine": machine, "sampled_tokens": SAMPLED, "dialects": [cost.figures() for cost in costs]}


def main() -> None:
    """Parse, run, print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="one round of three turns, to see that everything works")
    options.add_argument("--json", type=Path, metavar="FILE", help="write all figures to a file")
    options.add_argument("--rounds", type=int, default=5, help="conversations of each dialect")
    options.add_argument("--turns", type=int, default=40, help="calls of a conversation")
    options.add_argument("--dialects", nargs="+", metavar="NAME", help="only these, by their names in records")
    chosen = options.parse_args()
    if chosen.quick:
        chosen.rounds, chosen.turns = 1, 3
    result = run(chosen)
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
