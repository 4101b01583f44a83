"""An engine at the seam that is shown images, and images to show it: real PNG files, as large as one likes."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from turnstile.conversation import Answer, Call, Media, Message, Role, Sampling, Text, Usage
from turnstile.engines.base import Capabilities
from turnstile.exchange.failures import Progress
from turnstile.exchange.inflight import Flight
from turnstile.exchange.rollouts import OpenRollout
from turnstile.exchange.run import run
from turnstile.exchange.world import World
from turnstile.expansion import ExpandedIds, ImageRange
from turnstile.generation import Delta, Draw, Emit, Finish, Generation, LogprobsMode, Prompt
from turnstile.journal import CallStarted
from turnstile.store import Blobs
from turnstile.tokens import IdRun, LogprobRun
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.files import read, write
from turnstile.trajectory.shapes import Rollout
from turnstile.trajectory.side_files import SideKind
from turnstile.trajectory.validate import validate_file

CAPABILITIES = Capabilities(
    engine="seeing",
    version="1",
    models=("m",),
    context_length=None,
    concurrency=None,
    vocab_size=None,
    chat_template="",
    honours=frozenset(Draw.__struct_fields__),
    constraints=frozenset({"free"}),
    max_top_logprobs=0,
    echoes_prompt_ids="ids",
    images="collapsed",
)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, shade: int = 0) -> bytes:
    """A grey PNG of that size; another shade is another file."""
    rows = (b"\0" + bytes([shade]) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def picture(width: int, height: int, shade: int = 0) -> Media:
    data = png(width, height, shade)
    return Media(hashlib.sha256(data).hexdigest(), "image/png", data, width, height)


def tokens_of(media: Media) -> int:
    """One for each 28 x 28 pixels, at least four, as Qwen2.5-VL counts."""
    return max(4, round(media.width / 28) * round(media.height / 28))


def as_run(prompt: Prompt) -> ExpandedIds:
    """A prompt as an engine runs it, found by looking for its placeholders one by one."""
    ids: list[int] = []
    ranges: list[ImageRange] = []
    waiting = list(prompt.media)
    for token_id in prompt.ids_T.tolist():
        if token_id == prompt.placeholder_id and waiting:
            count = tokens_of(waiting.pop(0))
            ranges.append(ImageRange(len(ids), count, count))
            ids += [token_id] * count
        else:
            ids.append(token_id)
    assert not waiting
    return ExpandedIds(IdRun.of(ids), tuple(ranges))


def honest(_: Prompt, generation: Generation) -> Generation:
    return generation


class SeeingEngine:
    """Answers with the scripted ids, each -0.5, and says what it ran."""

    def __init__(self) -> None:
        self.capabilities = CAPABILITIES
        self.answers: list[list[int]] = []
        self.prompts: list[Prompt] = []
        self.runs: list[ExpandedIds] = []
        """What it ran for each of them."""
        self.twist: Callable[[Prompt, Generation], Generation] = honest
        """What of an answer is told otherwise than it was."""
        self.stops: frozenset[int] = frozenset()

    async def generate(self, prompt: Prompt, draw: Draw, emit: Emit) -> Generation:
        self.prompts.append(prompt)
        ids = self.answers.pop(0)
        run = as_run(prompt)
        self.runs.append(run)
        await emit(Delta(IdRun.of(ids)))
        stopped = bool(ids) and ids[-1] in draw.stop_ids
        generation = Generation(
            ids_S=IdRun.of(ids),
            logprobs_S=LogprobRun.of([-0.5] * len(ids)),
            finish=Finish.STOP if stopped else Finish.LENGTH,
            engine_finish_reason="stop" if stopped else "length",
            usage=Usage(len(run), len(ids)),
            logprobs_mode=LogprobsMode.RAW,
            logprobs_temperature=1.0,
            expanded=run if prompt.media else None,
            prompt_echo_T=None if prompt.media else prompt.ids_T,
        )
        return self.twist(prompt, generation)

    async def health(self) -> str:
        return ""

    async def close(self) -> None:
        pass


def without_expansion(_: Prompt, generation: Generation) -> Generation:
    return msgspec.structs.replace(generation, expanded=None)


class Agent:
    """One agent and the rollout it talks to."""

    def __init__(self, world: World, rollout: OpenRollout) -> None:
        self.world = world
        self.rollout = rollout
        self.engine: Any = world.engine
        self.messages: list[Message] = []
        self.media: list[Media] = []

    def say(self, *parts: str | Media, role: Role = Role.USER, call_id: str = "") -> Agent:
        self.media += [part for part in parts if isinstance(part, Media)]
        shown = tuple(Text(part) if isinstance(part, str) else part.image for part in parts)
        self.messages.append(Message(role, shown, call_id=call_id))
        return self

    async def ask(self, text: str, **sampling: Any) -> Flight:
        """Have this sampled, and take the answer into the history."""
        ids = self.world.served.tokenizer.encode(text + "<|im_end|>").tolist()
        self.engine.answers += [ids] * (sampling.get("choices") or 1)
        media = {each.sha256: each for each in self.media}
        shown = {image.sha256 for message in self.messages for image in message.images}
        call = Call(
            "openai.chat", "m", tuple(self.messages), sampling=Sampling(**sampling),
            media=tuple(each for sha256, each in media.items() if sha256 in shown),
        )  # fmt: skip
        flight = await self.fly(call)
        if isinstance(flight.outcome, Answer):
            self.messages.append(flight.outcome.replies[0].message)
        return flight

    async def fly(self, call: Call) -> Flight:
        flight = self.rollout.take_off(call, f"digest of {len(self.rollout.forest.calls)}")
        await run(self.world, self.rollout, call, flight, Progress("r", call.dialect))
        return flight

    @property
    def prompt(self) -> Prompt:
        return self.engine.prompts[-1]

    @property
    def started(self) -> CallStarted:
        return list(self.rollout.forest.calls.values())[-1].started

    def exported(self, folder: Path) -> Rollout:
        """The trajectory, written with its images and found to be in order."""
        rollout = assemble(self.rollout.forest)
        blobs = Blobs(folder)

        class Stored:
            def side_bytes(self, kind: SideKind, name_sha256: str) -> bytes:
                return blobs.get(name_sha256)

        file = folder / "out.jsonl"
        write(file, [rollout], Stored())
        assert [str(each) for each in validate_file(file) if each.code.startswith(("E", "W6"))] == []
        assert list(read(file)) == [rollout]
        return rollout

    def ran(self) -> list[list[int]]:
        """Each prompt as the engine ran it and what it sampled, by call."""
        nodes = self.rollout.forest.nodes
        return [
            [*run.ids_T.tolist(), *node.choice.ids_S.tolist()]
            for run, node in zip(self.engine.runs, nodes, strict=True)
        ]

    def text(self, prompt: Prompt | None = None) -> str:
        return self.world.served.tokenizer.decode((prompt or self.prompt).ids_T)
