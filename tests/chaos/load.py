"""Many rollouts at once, or very many calls one after the other, on a scripted engine; nothing may be lost or crossed.

    python tests/chaos/load.py [--rollouts 500] [--at-once 500] [--turns 20] [--seed 1] [--folder DIR]

Each agent answers tool calls with results that only its rollout can have. When all are done, every answer must be in
the store, every trajectory must be whole and sound, and no token of one rollout may stand in another. Prints the
latency that agents saw, and how memory and open files went; `--rollouts 5000 --at-once 64 --turns 40` is 200,000 calls.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from crowd import Crowd, Seen
from judge import lost, unfaithful, unsound
from nursery import Nursery, Turnstile
from scripted import scripted

from turnstile.templates.tokenizer import Tokenizer

_TOLD_S = 60
"""How often it is said how far it is."""
_READ = {
    "type": "function",
    "function": {"name": "read_file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
}


@dataclass
class Workers(Crowd):
    """Agents with a tool, over one plain pool of connections: what they cost themselves is little."""

    _session: aiohttp.ClientSession | None = None

    async def live(self, rollout_id: str) -> None:
        """One rollout from its first message to its end."""
        nonce = self.nonce(rollout_id)
        messages: list[dict[str, Any]] = [{"role": "user", "content": f"This is {nonce}. Begin."}]
        for turn in range(self.turns):
            message = await self._told(rollout_id, turn, messages)
            messages.append(message)
            calls = message.get("tool_calls") or []
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": f"line {turn} of {nonce}"} for call in calls
            ]
            if not calls:
                messages.append({"role": "user", "content": f"Turn {turn} of {nonce}: go on."})
        await self._finish(rollout_id)

    async def _told(self, rollout_id: str, turn: int, messages: list[dict[str, Any]]) -> dict[str, Any]:
        session = self._session = self._session or aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=self.patience_s)
        )
        streams = random.Random(f"{self.seed}:{rollout_id}:{turn}").random() < 0.25
        body = {"model": "m", "messages": messages, "max_tokens": 96, "tools": [_READ], "stream": streams}
        began = time.monotonic()
        async with session.post(f"{self.where()}/r/{rollout_id}/v1/chat/completions", json=body) as answer:
            content = await answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{rollout_id} turn {turn}: {answer.status} {content[:300]!r}")
            headers = answer.headers
        self.latencies_s.append(time.monotonic() - began)
        message = _joined(content) if streams else json.loads(content)["choices"][0]["message"]
        seen = Seen(
            rollout_id, turn, headers["x-turnstile-call"], headers["x-turnstile-history"], message.get("content") or ""
        )
        self.seen.append(seen)
        if seen.history != ("root" if turn == 0 else "spliced"):
            self.wrong.append(f"{rollout_id} turn {turn}: history {seen.history}")
        return message

    async def close(self) -> None:
        """Close all connections."""
        if self._session:
            await self._session.close()


def _joined(content: bytes) -> dict[str, Any]:
    """The message that a stream adds up to."""
    lines = [line[6:] for line in content.split(b"\n") if line.startswith(b"data: ")]
    if lines[-1] != b"[DONE]":
        raise RuntimeError(f"a stream ended with {lines[-1][:200]!r}")
    text: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    for line in lines[:-1]:
        for choice in json.loads(line)["choices"]:
            delta = choice["delta"]
            text.append(delta.get("content") or "")
            for piece in delta.get("tool_calls") or []:
                call = calls.setdefault(piece["index"], {"type": "function", "function": {"name": "", "arguments": ""}})
                call["id"] = piece.get("id") or call["id"]
                call["function"]["name"] += piece["function"].get("name") or ""
                call["function"]["arguments"] += piece["function"].get("arguments") or ""
    return {"role": "assistant", "content": "".join(text) or None, "tool_calls": list(calls.values()) or None}


@dataclass
class Watch:
    """What a Turnstile takes, looked at once a second."""

    turnstile: Turnstile
    workers: Workers
    looks: list[tuple[int, int, int]] = field(default_factory=list)
    """Answers so far, physical memory in bytes, open files."""

    async def look(self) -> None:
        """Until it is cancelled."""
        for seconds in itertools.count():
            self.looks.append((len(self.workers.seen), self.turnstile.resident_bytes(), self.turnstile.open_files()))
            if seconds % _TOLD_S == _TOLD_S - 1:
                _tell([f"{len(self.workers.seen)} calls, {len(self.workers.finished)} rollouts; {self.told()}"])
            await asyncio.sleep(1.0)

    def told(self) -> str:
        """In words: how memory went over the second half, by a straight line through it, and the most of both."""
        half = self.looks[len(self.looks) // 2 :]
        slope = 0.0
        if len({calls for calls, _, _ in half}) > 1:
            slope = statistics.linear_regression([calls for calls, _, _ in half], [taken for _, taken, _ in half]).slope
        most, files = max(taken for _, taken, _ in self.looks), [each for _, _, each in self.looks]
        return (
            f"memory at most {most / 2**20:.0f} MiB, {slope * 1000 / 1024:+.1f} KiB per 1,000 calls over the second "
            f"half; open files {files[0]} at first, {max(files)} at most, {files[-1]} at last"
        )


async def _run(options: argparse.Namespace, turnstile: Turnstile) -> tuple[Workers, Watch]:
    workers = Workers(options.seed, options.turns, lambda: turnstile.url, patience_s=3600.0)
    watch = Watch(turnstile, workers)
    names = iter(range(options.rollouts))

    async def lane() -> None:
        for number in names:
            await workers.live(f"load-{number}")

    async with asyncio.TaskGroup() as watching:
        looking = watching.create_task(watch.look())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(options.at_once, options.rollouts)):
                    group.create_task(lane())
        finally:
            await workers.close()
        # What the agents left is taken down by then.
        await asyncio.sleep(5.0)
        looking.cancel()
    return workers, watch


def main() -> int:
    """Run it. Returns: the exit code, 1 on any breach."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=500)
    parser.add_argument("--at-once", type=int, default=500)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep everything here instead of in a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with scripted(folder / "model", options.seed, 0.0, calls=0.5) as fake:
            nursery = Nursery(folder / "turnstile.log")
            try:
                turnstile = nursery.start([
                    "--engine", fake.url, "--model", "m", "--tokenizer", str(folder / "model"),
                    "--store", str(folder / "store"), "--port", "0",
                ])  # fmt: skip
                began = time.monotonic()
                workers, watch = asyncio.run(_run(options, turnstile))
                took_s = time.monotonic() - began
            finally:
                nursery.close()
        tokenizer = Tokenizer.from_json((folder / "model" / "tokenizer.json").read_text(encoding="utf-8"))
        breaches = [*workers.wrong, *lost(folder / "store", workers.seen), *unsound(folder / "store")]
        breaches += unfaithful(folder / "store", workers, tokenizer)
    _tell(itertools.islice((f"BREACH {each}" for each in breaches), 20))
    latencies = sorted(workers.latencies_s)
    p50, p99 = (latencies[int(len(latencies) * share)] for share in (0.5, 0.99))
    _tell([
        f"seed {options.seed}: {len(workers.finished)} rollouts x {options.turns} turns, {options.at_once} at once: "
        f"{len(workers.seen)} calls in {took_s:.0f} s ({len(workers.seen) / took_s:.0f} a second, agents and engine on "
        f"the same machine); p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms; {len(breaches)} lost or crossed",
        watch.told(),
    ])  # fmt: skip
    return 1 if breaches or len(workers.finished) != options.rollouts else 0


def _tell(lines: Any) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
