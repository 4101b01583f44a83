"""The fixed load: clients that each hold a conversation of a given length and grow it by one tool result a turn."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import aiohttp
import orjson
from materials import MODEL, TOOL, Materials

_RESULT_WORDS = 40
_HEAD = b'{"model":"' + MODEL.encode() + b'","temperature":1.0,"max_tokens":512,"messages":['
_TAIL = b'],"tools":[' + orjson.dumps(TOOL) + b"]}"
_HISTORY_HEADER = "x-turnstile-history"


@dataclass(frozen=True)
class Cell:
    """One load of the benchmark."""

    held: int
    """Ids in a conversation when measuring begins."""
    clients: int
    """Conversations that are in the air at once."""
    turns: int
    """Measured calls of each conversation."""
    lanes: int = 1
    """Conversations that a client leads, one after the other."""

    @property
    def rollouts(self) -> int:
        """Conversations in all."""
        return self.clients * self.lanes


@dataclass(frozen=True)
class Target:
    """Where a load goes."""

    name: str
    chat_url: Callable[[str], str]
    """The address of a rollout's chat completions."""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Timings:
    """What clients saw."""

    latencies_s: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    """How often each history header, or `error STATUS`, was answered."""

    def at(self, share: float) -> float:
        """The latency that `share` of the calls stay under, seconds."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


class Conversation:
    """One client's history, as JSON that only grows."""

    def __init__(self, rollout_id: str, opening: bytes, results: Iterator[str]) -> None:
        self.rollout_id = rollout_id
        self._pieces = [opening]
        self._results = results

    def body(self) -> bytes:
        """The next request."""
        return b"".join((_HEAD, *self._pieces, _TAIL))

    def hear(self, answer: bytes) -> None:
        """Take an answer in, and run its tool."""
        message = orjson.loads(answer)["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        kept = {"role": "assistant", "content": message.get("content"), **({"tool_calls": calls} if calls else {})}
        follow = [{"role": "tool", "tool_call_id": call["id"], "content": next(self._results)} for call in calls]
        follow = follow or [{"role": "user", "content": next(self._results)}]
        self._pieces += [b"," + orjson.dumps(one) for one in (kept, *follow)]


class Load:
    """Makes equal conversations for every target."""

    def __init__(self, materials: Materials) -> None:
        self._materials = materials
        self._openings: dict[int, bytes] = {}
        self._results = [materials.prose(_RESULT_WORDS, 1000 + at) for at in range(20)]

    def conversations(self, cell: Cell, name: str) -> list[Conversation]:
        """Conversations of equal length, each with a first message of its own."""
        rest = self._opening(cell.held)
        made: list[Conversation] = []
        for number in range(cell.rollouts):
            rollout_id = f"{name}-{number}"
            system = orjson.dumps({"role": "system", "content": f"You are agent {rollout_id}. Work with care."})
            made.append(Conversation(rollout_id, system + rest, itertools.cycle(self._results)))
        return made

    def _opening(self, held: int) -> bytes:
        if held not in self._openings:
            messages = [{"role": "user", "content": text} for text in self._materials.opening(held)]
            self._openings[held] = b"".join(b"," + orjson.dumps(message) for message in messages)
        return self._openings[held]


async def open_all(session: aiohttp.ClientSession, target: Target, lanes: list[list[Conversation]]) -> Timings:
    """The first call of every conversation: the one that renders all of it."""
    timings = Timings()
    await asyncio.gather(*(_calls(session, target, one, 1, timings) for lane in lanes for one in lane[:1]))
    for later in itertools.zip_longest(*(lane[1:] for lane in lanes)):
        await asyncio.gather(*(_calls(session, target, one, 1, timings) for one in later if one))
    return timings


async def grow_all(
    session: aiohttp.ClientSession, target: Target, lanes: list[list[Conversation]], turns: int
) -> Timings:
    """The measured calls: every client leads its conversations one after the other."""
    timings = Timings()

    async def lead(lane: list[Conversation]) -> None:
        for conversation in lane:
            await _calls(session, target, conversation, turns, timings)

    await asyncio.gather(*map(lead, lanes))
    return timings


def lanes_of(cell: Cell, conversations: list[Conversation]) -> list[list[Conversation]]:
    """The conversations of each client."""
    return [conversations[client :: cell.clients] for client in range(cell.clients)]


async def _calls(
    session: aiohttp.ClientSession, target: Target, conversation: Conversation, turns: int, timings: Timings
) -> None:
    url = target.chat_url(conversation.rollout_id)
    headers = {"content-type": "application/json", **target.headers}
    for _ in range(turns):
        body = conversation.body()
        began = time.perf_counter()
        async with session.post(url, data=body, headers=headers) as response:
            answer = await response.read()
        timings.latencies_s.append(time.perf_counter() - began)
        if response.status != 200:
            timings.outcomes[f"error {response.status}: {answer[:300].decode(errors='replace')}"] += 1
            return
        timings.outcomes[response.headers.get(_HISTORY_HEADER, "answered")] += 1
        conversation.hear(answer)
