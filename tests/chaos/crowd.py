"""Many agents at once, each with a conversation of its own, who remember every answer that they were given in full.

Some hang up in the middle of a call and ask again, as a client with a deadline does; some die, and their rollout is
closed by its runner.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import httpx
import openai

_NONCE_LETTERS = "abcdefghjkmnpqrstuvwxyz"


@dataclass(frozen=True)
class Seen:
    """An answer that reached its client whole."""

    rollout_id: str
    turn: int
    call_id: str
    history: str
    text: str


@dataclass
class Crowd:
    """What all agents share: where Turnstile is now, what they saw, and how often they had to ask again."""

    seed: int
    turns: int
    where: Callable[[], str]
    """The base URL of the Turnstile of this moment."""
    patience_s: float = 120.0
    hang_ups: float = 0.0
    """The share of calls that are given up after a moment and made again."""
    deaths: float = 0.0
    """The share of turns before which an agent ends for good."""
    seen: list[Seen] = field(default_factory=list)
    asked_again: int = 0
    hung_up: int = 0
    finished_again: int = 0
    """How often the end of a rollout had to be told again."""
    refusals: Counter[str] = field(default_factory=Counter)
    """What Turnstile refused with: status and code; a stream that broke off has status 200."""
    abandoned: set[str] = field(default_factory=set)
    """Rollouts whose agents died."""
    finished: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    _http: openai.DefaultAsyncHttpxClient | None = None

    def nonce(self, rollout_id: str) -> str:
        """What only this rollout's messages hold."""
        return "".join(random.Random(f"{self.seed}:{rollout_id}").choices(_NONCE_LETTERS, k=12))

    async def live(self, rollout_id: str) -> None:
        """One rollout from its first message to its end."""
        messages: list[dict[str, Any]] = []
        nonce = self.nonce(rollout_id)
        for turn in range(self.turns):
            if random.Random(f"{self.seed}:{rollout_id}:{turn}:death").random() < self.deaths:
                await self._die(rollout_id, messages, turn)
                return
            messages.append(_next_message(messages, nonce, turn))
            answer = await self._ask(rollout_id, messages, turn)
            messages.append({"role": "assistant", "content": answer.text})
        await self._finish(rollout_id)

    async def _die(self, rollout_id: str, messages: list[dict[str, Any]], turn: int) -> None:
        """End in the middle of a call, or before the first; a runner closes what is left."""
        self.abandoned.add(rollout_id)
        last = [*messages, _next_message(messages, self.nonce(rollout_id), turn)]
        try:
            async with asyncio.timeout(random.Random(f"{self.seed}:{rollout_id}:{turn}:after").uniform(0.0, 0.2)):
                await _answer(self._client(rollout_id), last, streams=True)
        except (TimeoutError, openai.APIError):
            pass
        await self._finish(rollout_id, status="failed")

    def _client(self, rollout_id: str) -> openai.AsyncOpenAI:
        # One pool for all: a pool of its own would cost each agent more than its calls do.
        self._http = self._http or openai.DefaultAsyncHttpxClient(
            verify=False, limits=httpx.Limits(max_connections=None)
        )
        url = f"{self.where()}/r/{rollout_id}/v1"
        return openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=1, timeout=30.0, http_client=self._http)

    async def _ask(self, rollout_id: str, messages: list[dict[str, Any]], turn: int) -> Seen:
        draw = random.Random(f"{self.seed}:{rollout_id}:{turn}")
        streams = draw.random() < 0.5
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.patience_s
        gives_up = draw.random() < self.hang_ups
        is_again = False
        while loop.time() < deadline:
            began = loop.time()
            try:
                async with asyncio.timeout(draw.uniform(0.0, 0.1) if gives_up else None):
                    text, headers = await _answer(self._client(rollout_id), messages, streams, is_again=is_again)
            except TimeoutError:
                self.hung_up += 1
                gives_up, is_again = False, True
                continue
            except (openai.BadRequestError, openai.NotFoundError, openai.ConflictError):
                raise
            except openai.APIError as error:
                self.asked_again += 1
                if error.code:
                    self.refusals[f"{getattr(error, 'status_code', 200)} {error.code}"] += 1
                await asyncio.sleep(0.05)
                continue
            self.latencies_s.append(loop.time() - began)
            seen = Seen(rollout_id, turn, headers["x-turnstile-call"], headers["x-turnstile-history"], text)
            self.seen.append(seen)
            if seen.history != ("root" if turn == 0 else "spliced"):
                self.wrong.append(f"{rollout_id} turn {turn}: history {seen.history}")
            return seen
        raise TimeoutError(f"{rollout_id} turn {turn}: no answer in {self.patience_s} s")

    async def _finish(self, rollout_id: str, status: str = "completed") -> None:
        deadline = asyncio.get_running_loop().time() + self.patience_s
        while asyncio.get_running_loop().time() < deadline:
            try:
                async with aiohttp.ClientSession() as session:
                    url = f"{self.where()}/rollouts/{rollout_id}/finish"
                    async with session.post(url, json={"status": status, "reward": 1.0}) as answer:
                        # 409: the end was recorded, and what said so did not arrive. 404: it was never begun.
                        if answer.status in (200, 409):
                            self.finished.add(rollout_id)
                            return
                        if answer.status == 404 and rollout_id in self.abandoned:
                            return
                        if answer.status != 503:
                            self.wrong.append(f"{rollout_id}: finish answered {answer.status}")
                            return
                        self.refusals[f"503 {(await answer.json())['error']['code']}"] += 1
            except aiohttp.ClientError:
                pass
            self.finished_again += 1
            await asyncio.sleep(0.05)
        raise TimeoutError(f"{rollout_id}: could not be finished")

    async def close(self) -> None:
        """Close all connections."""
        if self._http is not None:
            await self._http.aclose()


def _next_message(messages: list[dict[str, Any]], nonce: str, turn: int) -> dict[str, Any]:
    if not messages:
        return {"role": "user", "content": f"This is {nonce}. Begin."}
    return {"role": "user", "content": f"Turn {turn} of {nonce}: go on."}


async def _answer(
    client: openai.AsyncOpenAI, messages: Any, streams: bool, *, is_again: bool = False
) -> tuple[str, Any]:
    body: dict[str, Any] = {"model": "m", "messages": messages, "max_tokens": 64}
    if is_again:
        # What the SDK itself says of its retries: this one was given up by the agent above it.
        body["extra_headers"] = {"x-stainless-retry-count": "1"}
    if not streams:
        raw = await client.chat.completions.with_raw_response.create(**body)
        return raw.parse().choices[0].message.content or "", raw.headers
    async with client.chat.completions.with_streaming_response.create(**body, stream=True) as raw:
        pieces: list[str] = []
        ended = False
        async for chunk in await raw.parse():
            for choice in chunk.choices:
                pieces.append(choice.delta.content or "")
                ended = ended or choice.finish_reason is not None
        if not ended:
            # The SDK takes a body that just ends for a whole answer; an agent that must not lose anything does not.
            raise openai.APIConnectionError(
                message="the stream broke off", request=client._client.build_request("GET", "/")
            )
        return "".join(pieces), raw.headers
