"""Kill Turnstile again and again under a crowd of agents, and see that nothing is lost.

    python tests/chaos/kills.py [--kills 200] [--rollouts 50] [--seed 1] [--seconds 540] [--durability process]

Fifty agents talk through one Turnstile to a scripted engine; each starts its next rollout when one ends. At random
moments the process is killed (`kill -9`) and started again on its store. Beside it the engine dies, agents hang up or
die in mid-call, and exports of the live store and compactions of the dead one are killed while they run.

After each kill: every answer that an agent had seen whole is in the store, no rollout has a turn twice or a call
without an end behind it, and its trajectory is sound; after every tenth the whole store is checked. When it is over,
each rollout must be there once, whole and spliced, and the store and its trajectories must pass every check. A seed
decides what is done and when; what runs at that moment is the machine's. Exit code 1 on any breach.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from crowd import Crowd, Seen
from judge import lost, unfaithful, unsettled, unsound
from nursery import Nursery, Turnstile
from scripted import Scripted, scripted

from turnstile.store import Reader
from turnstile.templates.tokenizer import Tokenizer
from turnstile.trajectory.validate import validate_file

_TURNS = 6
_TOKEN_S = 0.002
_LIVES_S = (0.02, 1.2)
"""How long a process may live once it is ready: some die with their first calls, some in full work."""
_ENGINE_DIES, _EXPORTED, _COMPACTED = 0.15, 0.15, 0.15
"""How often, for each life of the process."""
_WHOLE_CHECK = 10


@dataclass
class Run:
    """One run, and what came of it."""

    options: argparse.Namespace
    folder: Path
    nursery: Nursery
    engine: Scripted
    turnstile: Turnstile | None = None
    port: int = 0
    kills: int = 0
    done: Counter[str] = field(default_factory=Counter)
    """How often what else was done."""
    stopping: bool = False
    breaches: list[str] = field(default_factory=list)

    @property
    def store(self) -> Path:
        """Where the Turnstiles write."""
        return self.folder / "store"

    def url(self) -> str:
        """Where agents find it, also while it is down."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Bring the next Turnstile up, at the address of the first."""
        options = ["--engine", self.engine.url, "--model", "m", "--tokenizer", str(self.folder / "model")]
        options += ["--store", str(self.store), "--port", str(self.port), "--grace-s", "0.5"]
        options += ["--durability", self.options.durability]
        self.turnstile = await asyncio.to_thread(self.nursery.start, options)
        self.port = int(self.turnstile.url.rsplit(":", 1)[1])

    async def haunt(self, crowd: Crowd) -> None:
        """Kill and start until there were enough, looking after each kill for what was lost."""
        draw = random.Random(self.options.seed)
        checked = 0
        until = time.monotonic() + self.options.seconds
        while self.kills < self.options.kills and time.monotonic() < until:
            await self._live(draw)
            assert self.turnstile is not None
            # Taken before the kill: what is seen later was sent before it too, and is looked for next time.
            seen = len(crowd.seen)
            self.turnstile.kill()
            self.kills += 1
            await asyncio.sleep(0.02)
            await self._look(crowd.seen[checked:seen])
            checked = seen
            if draw.random() < _COMPACTED:
                await self._cut_short("compact", ["store", "compact", str(self.store)], draw.uniform(0.0, 0.15))
            await self.start()
            if self.kills % 10 == 0:
                _tell(f"{self.kills} kills, {len(crowd.seen)} answers, {len(crowd.finished)} rollouts, "
                      f"{len(self.breaches)} breaches")  # fmt: skip
        self.stopping = True

    async def _live(self, draw: random.Random) -> None:
        """One life of the process, with what befalls those around it."""
        life_s = draw.uniform(*_LIVES_S)
        engine_dies, exported = draw.random() < _ENGINE_DIES, draw.random() < _EXPORTED
        await asyncio.sleep(life_s / 2)
        if engine_dies:
            self.done["engine"] += 1
            await asyncio.to_thread(self.engine.die)
            await asyncio.sleep(draw.uniform(0.0, 0.2))
            await asyncio.to_thread(self.engine.rise)
        if exported:
            out = self.folder / f"export-{self.kills}.jsonl"
            await self._cut_short("export", ["export", str(self.store), "-o", str(out)], draw.uniform(0.0, 0.3))
            if out.exists():
                # Killed behind its last byte: a file under its last name is whole, or it is a lie.
                self.breaches += [f"{out.name}: {each}" for each in validate_file(out) if each.code.startswith("E")]
        await asyncio.sleep(life_s / 2)

    async def _cut_short(self, what: str, arguments: list[str], after_s: float) -> None:
        """Run a command, and kill it if it is not done by then."""
        process = await asyncio.to_thread(self.nursery.run, arguments)
        await asyncio.sleep(after_s)
        self.done[f"{what} killed" if process.lives else f"{what} done"] += 1
        process.kill()
        while process.lives:  # noqa: ASYNC110 - another program's child has no event
            await asyncio.sleep(0.01)

    async def _look(self, fresh: list[Seen]) -> None:
        """What the kill did."""
        whole = self.kills % _WHOLE_CHECK == 0
        checks: list[Callable[[], list[str]]] = [
            lambda: list(lost(self.store, fresh)),
            lambda: list(unsettled(self.store, fresh)),
            lambda: list(unsound(self.store)) if whole else [],
        ]
        for check in checks:
            self.breaches += await asyncio.to_thread(check)


async def _keep_living(run: Run, crowd: Crowd, names: itertools.count[int]) -> None:
    while not run.stopping:
        await crowd.live(f"chaos-{next(names)}")


async def _run(run: Run) -> Crowd:
    crowd = Crowd(run.options.seed, _TURNS, run.url, hang_ups=0.03, deaths=0.01)
    await run.start()
    names = itertools.count()
    async with asyncio.TaskGroup() as group:
        for _ in range(run.options.rollouts):
            group.create_task(_keep_living(run, crowd, names))
        group.create_task(run.haunt(crowd))
    return crowd


def _verdict(run: Run, crowd: Crowd, began: float) -> int:
    tokenizer = Tokenizer.from_json((run.folder / "model" / "tokenizer.json").read_text(encoding="utf-8"))
    breaches = [*run.breaches, *crowd.wrong, *lost(run.store, crowd.seen), *unsound(run.store)]
    breaches += unfaithful(run.store, crowd, tokenizer)
    with Reader.open(run.store) as reader:
        # A first call that nobody waits for any more may begin a rollout behind its runner's back.
        left = crowd.abandoned - crowd.finished
        still_open = [each.rollout_id for each in reader.open_rollouts() if each.rollout_id not in left]
        breaches += [f"{each} is still open" for each in still_open]
    for breach in breaches[:20]:
        _tell(f"BREACH {breach}")
    beside = ", ".join(f"{what} {count}" for what, count in sorted(run.done.items()))
    _tell(
        f"seed {run.options.seed}: {run.kills} kills in {time.monotonic() - began:.0f} s under {run.options.rollouts} "
        f"agents, durability {run.options.durability}; beside them: {beside}; {crowd.hung_up} calls hung up, "
        f"{len(crowd.abandoned)} agents died, {crowd.finished_again} requests to finish failed; "
        f"{len(crowd.seen)} answers seen whole, {crowd.asked_again} asked again; {len(crowd.finished)} rollouts "
        f"finished, each of their turns trained once; {len(breaches)} breaches"
    )
    return 1 if breaches or run.kills < min(run.options.kills, run.options.at_least) else 0


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run it. Returns: the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--at-least", type=int, default=5, help="fail if the time allowed fewer kills")
    parser.add_argument("--rollouts", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=540.0, help="start no more kills after this long")
    parser.add_argument("--durability", default="process", choices=["process", "power"])
    parser.add_argument("--folder", type=Path, help="keep everything here instead of in a temporary folder")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with scripted(folder / "model", options.seed, _TOKEN_S) as engine:
            nursery = Nursery(folder / "turnstile.log")
            try:
                run = Run(options, folder, nursery, engine)
                crowd = asyncio.run(_run(run))
            finally:
                nursery.close()
        return _verdict(run, crowd, began)


if __name__ == "__main__":
    sys.exit(main())
