"""Kill Turnstile again and again under a crowd of agents, and see that nothing is lost.

    python tests/chaos/kills.py [--kills 200] [--rollouts 50] [--seed 1] [--seconds 540] [--folder DIR]

Fifty agents talk through one Turnstile to a scripted engine; each starts its next rollout when one ends. At random
moments the process is killed (`kill -9`) and started again on its store. After each kill every answer that an agent
had seen whole must be in the store. When it is over, each rollout must be there once, whole and spliced, and the store
and its trajectories must pass every check. Bounded by `--kills` and by `--seconds`; exit code 1 on any breach.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from crowd import Crowd, Seen
from engine import scripted
from judge import lost, unfaithful, unsound
from nursery import Nursery, Turnstile

from turnstile.store import Reader
from turnstile.templates.tokenizer import Tokenizer

_TURNS = 6
_TOKEN_S = 0.002
_LIVES_S = (0.02, 1.2)
"""How long a process may live once it is ready: some die with their first calls, some in full work."""


@dataclass
class Run:
    """One run, and what came of it."""

    options: argparse.Namespace
    folder: Path
    nursery: Nursery
    engine_url: str
    turnstile: Turnstile | None = None
    port: int = 0
    kills: int = 0
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
        options = ["--engine", self.engine_url, "--model", "m", "--tokenizer", str(self.folder / "model")]
        options += ["--store", str(self.store), "--port", str(self.port), "--grace-s", "0.5"]
        self.turnstile = await asyncio.to_thread(self.nursery.start, options)
        self.port = int(self.turnstile.url.rsplit(":", 1)[1])

    async def haunt(self, crowd: Crowd) -> None:
        """Kill and start until there were enough, looking after each kill for what was lost."""
        draw = random.Random(self.options.seed)
        checked = 0
        until = time.monotonic() + self.options.seconds
        while self.kills < self.options.kills and time.monotonic() < until:
            await asyncio.sleep(draw.uniform(*_LIVES_S))
            assert self.turnstile is not None
            # Taken before the kill: what is seen later was sent before it too, and is looked for next time.
            seen = len(crowd.seen)
            self.turnstile.kill()
            self.kills += 1
            await asyncio.sleep(0.02)
            fresh = crowd.seen[checked:seen]
            self.breaches += await asyncio.to_thread(_all_lost, self.store, fresh)
            checked = seen
            await self.start()
            if self.kills % 10 == 0:
                _tell(f"{self.kills} kills, {len(crowd.seen)} answers, {len(crowd.finished)} rollouts, "
                      f"{len(self.breaches)} breaches")  # fmt: skip
        self.stopping = True


def _all_lost(store: Path, fresh: list[Seen]) -> list[str]:
    return list(lost(store, fresh))


async def _keep_living(run: Run, crowd: Crowd, names: itertools.count[int]) -> None:
    while not run.stopping:
        await crowd.live(f"chaos-{next(names)}")


async def _run(run: Run) -> Crowd:
    crowd = Crowd(run.options.seed, _TURNS, run.url)
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
        breaches += [f"{each.rollout_id} is still open" for each in reader.open_rollouts()]
    for breach in breaches[:20]:
        _tell(f"BREACH {breach}")
    _tell(
        f"seed {run.options.seed}: {run.kills} kills in {time.monotonic() - began:.0f} s under {run.options.rollouts} "
        f"agents; {len(crowd.seen)} answers seen whole, {crowd.asked_again} asked again; {len(crowd.finished)} rollouts"
        f" finished, each of their turns trained once; {len(breaches)} breaches"
    )
    return 1 if breaches or run.kills < min(run.options.kills, 5) else 0


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run it. Returns: the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rollouts", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=540.0, help="start no more kills after this long")
    parser.add_argument("--folder", type=Path, help="keep everything here instead of in a temporary folder")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with scripted(folder / "model", options.seed, _TOKEN_S) as fake:
            nursery = Nursery(folder / "turnstile.log")
            try:
                run = Run(options, folder, nursery, fake.url)
                crowd = asyncio.run(_run(run))
            finally:
                nursery.close()
        return _verdict(run, crowd, began)


if __name__ == "__main__":
    sys.exit(main())
