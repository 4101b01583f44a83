"""What Turnstile costs a call, beside a bare relay and, with `--peers`, beside other proxies.

    python benchmarks/overhead.py [--quick] [--peers] [--json FILE]

A stub engine answers at once on loopback, so all that is seen is the proxies. Every proxy runs in a process of its
own, started afresh for each load; its CPU time comes from the kernel. All figures of a load come from one run, and
so do their ratios. Numbers are printed, never asserted.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
import uvloop
from load import Cell, Load, Target, grow_all, lanes_of, open_all
from materials import MODEL, Materials
from peers import PEERS, Peer
from processes import DidNotStart, Server, start_announcing
from report import print_table

HERE = Path(__file__).resolve().parent
HELD = (2_000, 20_000, 128_000)
CLIENTS = (1, 32, 256)
_WARM_CLIENTS = 8


@dataclass(frozen=True)
class Measured:
    """What one target did under one load."""

    calls: int
    cpu_ms: float | None
    """CPU of the proxy for one call, milliseconds, user and system; None where there is no proxy."""
    opening_cpu_ms: float | None
    """The same for the first call of a conversation."""
    p50_ms: float
    p99_ms: float
    resident_bytes_per_id: float | None
    """Growth of the proxy's physical memory over all held ids, after a warm-up of the same length."""
    outcomes: dict[str, int]
    """What the measured calls were answered with."""


@dataclass(frozen=True)
class Contestant:
    """A proxy and how to start it on the stub engine."""

    name: str
    start: Callable[[Path], Server | None]
    """From a folder for its files to a running server; None: the engine itself is called."""
    target: Callable[[str], Target]


def contestants(stub: Server, folder: Path, peers: tuple[Peer, ...]) -> list[Contestant]:
    """All that are compared, the plain engine first."""

    def relay(files: Path) -> Server:
        command = [sys.executable, str(HERE / "relay.py"), "--upstream", stub.url]
        return start_announcing(command, files / "relay.log")

    def turnstile(files: Path) -> Server:
        program = str(Path(sys.executable).parent / "turnstile")
        engine = ["--engine", stub.url, "--engine-kind", "llamacpp", "--model", MODEL, "--tokenizer", str(folder)]
        place = ["--store", str(files / "store"), "--port", "0", "--json"]
        return start_announcing([program, "serve", *engine, *place], files / "turnstile.log")

    found = [
        Contestant("engine", lambda _: None, lambda _: _plain("engine", stub.url)),
        Contestant("relay", relay, lambda url: _plain("relay", url)),
        Contestant("turnstile", turnstile, _turnstile_target),
    ]
    for peer in peers:
        try:
            programs = peer.installed()
        except DidNotStart as error:
            print(f"{peer.name} is left out: {error}", file=sys.stderr)
            continue
        found.append(Contestant(peer.name, _starter(peer, programs, stub.url), peer.target))
    return found


def _plain(name: str, url: str) -> Target:
    return Target(name, lambda _: f"{url}/v1/chat/completions")


def _turnstile_target(url: str) -> Target:
    return Target("turnstile", lambda rollout_id: f"{url}/r/{rollout_id}/v1/chat/completions")


def _starter(peer: Peer, programs: Path, engine: str) -> Callable[[Path], Server]:
    return lambda files: peer.start(programs, engine, files)


async def measure(target: Target, server: Server | None, load: Load, cell: Cell) -> Measured:
    """One target under one load."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        # As long as the measured ones, so that what an allocator keeps in reserve is not counted as growth.
        warm = Cell(cell.held, min(cell.clients, _WARM_CLIENTS), turns=2)
        await grow_all(session, target, lanes_of(warm, load.conversations(warm, "warm")), warm.turns)
        lanes = lanes_of(cell, load.conversations(cell, "bench"))
        began_bytes = server.resident_bytes() if server else 0
        before_s = server.cpu_s() if server else 0.0
        opened = await open_all(session, target, lanes)
        between_s = server.cpu_s() if server else 0.0
        grown = await grow_all(session, target, lanes, cell.turns)
        after_s = server.cpu_s() if server else 0.0
        ended_bytes = server.resident_bytes() if server else 0
    calls = len(grown.latencies_s)
    return Measured(
        calls=calls,
        cpu_ms=1e3 * (after_s - between_s) / calls if server else None,
        opening_cpu_ms=1e3 * (between_s - before_s) / len(opened.latencies_s) if server else None,
        p50_ms=1e3 * grown.at(0.50),
        p99_ms=1e3 * grown.at(0.99),
        resident_bytes_per_id=(ended_bytes - began_bytes) / (cell.held * cell.rollouts) if server else None,
        outcomes=dict(grown.outcomes),
    )


def cells_of(options: argparse.Namespace) -> list[Cell]:
    """The loads that were asked for."""
    if options.quick:
        return [Cell(1_000, 1, 2), Cell(1_000, 4, 2)]
    # A single client leads several conversations, so that its figures come from as many calls.
    return [
        Cell(held, clients, options.turns, lanes=max(1, 4 // clients))
        for held in options.held
        for clients in options.clients
    ]


@contextlib.contextmanager
def running(start: Callable[[Path], Server | None]) -> Iterator[Server | None]:
    """A server with a folder of its own, both gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="turnstile-bench-") as files:
        server = start(Path(files))
        try:
            yield server
        finally:
            if server:
                server.stop()


def run(options: argparse.Namespace) -> dict[str, object]:
    """All loads against all contestants, as one JSON object."""
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="turnstile-bench-model-") as name:
        folder = Path(name)
        load = Load(Materials.make(folder, options.sampled))
        stub_command = [sys.executable, str(HERE / "stub_engine.py"), "--folder", str(folder)]
        with running(lambda files: start_announcing(stub_command, files / "stub.log")) as stub:
            everyone = contestants(stub, folder, PEERS if options.peers else ())
            for cell in cells_of(options):
                measured = {one.name: result for one in everyone if (result := _one(one, load, cell))}
                print_table(cell, measured)
                results.append({**asdict(cell), "targets": {who: asdict(what) for who, what in measured.items()}})
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    return {"machine": machine, "sampled_tokens": options.sampled, "cells": results}


def _one(contestant: Contestant, load: Load, cell: Cell) -> Measured | None:
    try:
        with running(contestant.start) as server:
            gc.collect()
            return uvloop.run(measure(contestant.target(server.url if server else ""), server, load, cell))
    except (DidNotStart, aiohttp.ClientError, TimeoutError) as error:
        print(f"{contestant.name} is left out at {cell.held} ids, {cell.clients} clients: {error}", file=sys.stderr)
        return None


def main() -> None:
    """Parse, run, print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="two small loads, to see that everything works")
    options.add_argument("--peers", action="store_true", help="also other proxies, installed under .cache/peers")
    options.add_argument("--json", type=Path, metavar="FILE", help="write all figures to a file")
    options.add_argument("--held", type=int, nargs="+", default=HELD, help="ids held by a conversation")
    options.add_argument("--clients", type=int, nargs="+", default=CLIENTS, help="conversations at once")
    options.add_argument("--turns", type=int, default=6, help="measured calls of a conversation")
    options.add_argument("--sampled", type=int, default=64, help="tokens of an answer")
    chosen = options.parse_args()
    result = run(chosen)
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
