"""Thousands of requests that are nearly right, beside agents whose requests are right; nobody may notice.

    python tests/chaos/malformed.py [--requests 10000] [--seconds S] [--seed 1] [--at-once 16] [--folder DIR]

The grammar is in malforming.py. Afterwards: Turnstile lives and its log has no traceback, no answer was a 500, each
refusal had the shape of its dialect, no call was recorded of what was no whole request, the agents' rollouts are what
they lived through, `store check` finds nothing, and memory and open files are what they were.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
from malforming import Attempt, Malformer
from nursery import Nursery
from scripted import scripted
from siege import Siege

from turnstile.history.forest import Forest
from turnstile.store import Reader

_ANSWER_S = 60.0
_LEAVES_S = 0.02
_WARM = 300
"""Requests before the first look at memory: what is learnt once is no leak."""
_GROWTH_BYTES = 96 << 20
"""By how much memory may have grown: the allocator keeps what the largest bodies took, and the journal's pages stay."""
_MORE_FILES = 4


@dataclass
class Plan:
    """How much is done."""

    requests: int
    seed: int
    at_once: int = 16
    seconds: float = float("inf")
    """After which no more attempts are made."""


@dataclass
class Besetting:
    """What came of the attempts."""

    siege: Siege
    statuses: Counter[int] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    """How many calls were answered 200, by rollout."""
    sent: Counter[str] = field(default_factory=Counter)
    """How many attempts were made that may have become calls, by rollout."""
    breaches: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    async def beset(self, plan: Plan) -> None:
        """Make attempts while two agents talk, looking at memory and files before and after."""
        malformer, began = Malformer(plan.seed), time.monotonic()
        first = min(_WARM, plan.requests // 3)
        async with self.siege.talking(agents=2):
            await self.siege.goes_on(4)
            for count, deadline in ((first, began + plan.seconds / 3), (plan.requests - first, began + plan.seconds)):
                drawn = (malformer.attempt() for _ in range(count))
                await self._lanes(_until(deadline, drawn), plan.at_once)
                await self._look()
            await self.siege.goes_on(4)
        await self._finish_all()
        await self._settled()

    async def _lanes(self, attempts: Iterator[Attempt], at_once: int) -> None:
        async def lane() -> None:
            for attempt in attempts:
                await self._make(attempt)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(lane())

    async def _look(self) -> None:
        # What just ended is still being put away.
        await asyncio.sleep(1.0)
        self.memory.append(self.siege.server.resident_bytes())
        self.files.append(self.siege.server.open_files())

    async def _finish_all(self) -> None:
        """End every rollout that attempts began: what open rollouts take in memory is no leak."""
        async with httpx.AsyncClient(base_url=self.siege.server.url, timeout=_ANSWER_S, trust_env=False) as http:
            after: int | None = 0
            while after is not None:
                page = (await http.get("/rollouts", params={"status": "running", "limit": 1000, "after": after})).json()
                for each in page["rollouts"]:
                    path = f"/rollouts/{quote(each['rollout_id'], safe='')}/finish"
                    told = await http.post(path, json={"status": "failed"})
                    if told.status_code != 200:
                        self.breaches.append(f"{path}: {told.status_code} {told.text[:300]}")
                after = page["next"]

    async def _settled(self) -> None:
        deadline = time.monotonic() + _ANSWER_S
        await self._look()
        while self.files[-1] > self.files[0] + _MORE_FILES and time.monotonic() < deadline:
            await self._look()
        if self.files[-1] > self.files[0] + _MORE_FILES:
            self.breaches.append(f"{self.files[-1]} files are open, {self.files[0]} were")
        if self.memory[-1] > self.memory[0] + _GROWTH_BYTES:
            self.breaches.append(f"memory is {self.memory[-1] >> 20} MiB, and was {self.memory[0] >> 20}")

    async def _make(self, attempt: Attempt) -> None:
        self.kinds[attempt.kind] += 1
        if attempt.may_call:
            self.sent[attempt.rollout_id] += 1
        try:
            answer = await self._answer(attempt)
        except ConnectionError:
            # A client that still sends may see the connection reset before it sees why.
            answer = b""
        except TimeoutError:
            self.breaches.append(f"{attempt.kind}: no answer in {_ANSWER_S:g} s to {_shown(attempt)}")
            return
        if not answer and attempt.is_answered and not self.siege.server.lives:
            self.breaches.append(f"{attempt.kind}: it is dead after {_shown(attempt)}")
        if answer:
            self._judge(attempt, answer)

    async def _answer(self, attempt: Attempt) -> bytes:
        url = urlsplit(self.siege.server.url)
        reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=1 << 24)
        try:
            for piece in attempt.pieces:
                writer.write(piece)
                await writer.drain()
                if len(attempt.pieces) > 1:
                    await asyncio.sleep(0)
            if attempt.is_answered:
                async with asyncio.timeout(_ANSWER_S):
                    return await _whole_answer(reader)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVES_S):
                    return await _whole_answer(reader)
            return b""
        finally:
            if attempt.resets:
                line = writer.get_extra_info("socket")
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _judge(self, attempt: Attempt, answer: bytes) -> None:
        head, _, body = answer.partition(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        self.statuses[status] += 1
        if status == 200 and attempt.may_call and attempt.answer_is_a_calls:
            self.answered[attempt.rollout_id] += 1
        if status >= 500:
            self.breaches.append(f"{attempt.kind}: {status} {body[:300]!r} to {_shown(attempt)}")
        elif status >= 400 and b"HEAD" not in attempt.pieces[0][:5] and b'"error"' not in body:
            self.breaches.append(f"{attempt.kind}: {status} without an error's shape, {body[:200]!r}")

    def judge_store(self) -> None:
        """See that nothing is recorded that was no request, once the server is gone."""
        self.breaches += [*self.siege.breaches(), *self.siege.tracebacks()]
        with Reader.open(self.siege.store) as reader:
            rollouts = [each.rollout_id for each in reader.rollouts(limit=100_000)]
            for rollout_id in rollouts:
                if rollout_id.startswith("siege-"):
                    continue
                forest = Forest.of(reader.records(rollout_id))
                if len(forest.calls) > self.sent[rollout_id] + self.kinds["flipped bytes"]:
                    self.breaches.append(f"{rollout_id}: {len(forest.calls)} calls of {self.sent[rollout_id]} requests")
                # An answer that a reset kept from its client is given to the next that asks the same.
                kept = sum(bool(state.committed) + len(state.joined) for state in forest.calls.values())
                if kept < self.answered[rollout_id]:
                    self.breaches.append(
                        f"{rollout_id}: {kept} turns and repeats of {self.answered[rollout_id]} answers"
                    )
                self.breaches += [f"{rollout_id}: {call.call_id} has no end" for call in forest.open_calls]
            never = {"smuggled", "etc", "passwd", ""} & set(rollouts)
            self.breaches += [f"a rollout `{each}` began" for each in sorted(never)]

    def told(self) -> str:
        """The figures in a line."""
        statuses = ", ".join(f"{count} x {status}" for status, count in sorted(self.statuses.items()))
        quiet = sum(self.kinds.values()) - sum(self.statuses.values())
        return (
            f"{sum(self.kinds.values())} malformed requests of {len(self.kinds)} kinds: {statuses}, {quiet} without an "
            f"answer; beside them {len(self.siege.crowd.seen)} turns of {len(self.siege.crowd.finished)} rollouts; "
            f"memory {self.memory[0] >> 20} to {self.memory[-1] >> 20} MiB, files {self.files[0]} to {self.files[-1]}; "
            f"{len(self.breaches)} breaches"
        )


def _until(deadline: float, attempts: Iterator[Attempt]) -> Iterator[Attempt]:
    return itertools.takewhile(lambda _: time.monotonic() < deadline, attempts)


def _shown(attempt: Attempt) -> str:
    sent = b"".join(attempt.pieces)
    return repr(sent if len(sent) < 1500 else sent[:1200] + b" ... " + sent[-200:])


async def _whole_answer(reader: asyncio.StreamReader) -> bytes:
    """One answer, or what came until the connection ended."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as ended:
        return ended.partial
    if head.startswith(b"HTTP/1.1 100"):
        return await _whole_answer(reader)
    lower = head.lower()
    try:
        if b"transfer-encoding: chunked" in lower:
            return head + await reader.readuntil(b"\r\n0\r\n\r\n")
        length = int(lower.partition(b"content-length:")[2].split(b"\r\n")[0] or b"0")
        return head + await reader.readexactly(length)
    except asyncio.IncompleteReadError as ended:
        return head + ended.partial


def run(siege: Siege, plan: Plan) -> Besetting:
    """Beset a Turnstile that is up, and end it."""
    besetting = Besetting(siege)
    try:
        asyncio.run(besetting.beset(plan))
    finally:
        siege.server.kill()
    besetting.judge_store()
    return besetting


def main() -> int:
    """Run it. Returns: the exit code, 1 on any breach."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--folder", type=Path, help="keep everything here instead of in a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with scripted(folder / "model", options.seed, 0.0) as engine:
            nursery = Nursery(folder / "turnstile.log")
            try:
                siege = Siege(folder / "model", nursery, engine, folder / "store")
                siege.start()
                began = time.monotonic()
                besetting = run(siege, Plan(options.requests, options.seed, options.at_once, options.seconds))
                took_s = time.monotonic() - began
            finally:
                nursery.close()
    for breach in besetting.breaches[:20]:
        sys.stdout.write(f"BREACH {breach}\n")
    sys.stdout.write(f"{json.dumps(dict(besetting.kinds.most_common()))}\n")
    sys.stdout.write(f"seed {options.seed}, {took_s:.0f} s: {besetting.told()}\n")
    return 1 if besetting.breaches else 0


if __name__ == "__main__":
    sys.exit(main())
