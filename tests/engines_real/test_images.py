"""Screenshots through a whole Turnstile to a real vision model under vLLM, and back out to transformers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
import struct
import subprocess
import threading
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp import web
from anthropic import Anthropic
from openai import OpenAI

from turnstile.client import Client, RolloutHandle
from turnstile.config import Settings
from turnstile.engines.smollm import say_nothing
from turnstile.generation import Root
from turnstile.history.forest import Forest
from turnstile.history.pictures import known_runs
from turnstile.server.local import serving
from turnstile.store import Blobs, Reader
from turnstile.tokens import IdRun
from turnstile.trajectory.files import read, write
from turnstile.trajectory.format import Rollout
from turnstile.trajectory.side_files import SideKind
from turnstile.trajectory.validate import validate_file

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

GENERATE = "/inference/v1/generate"
PAD = 151655
SIZES = ((112, 84), (56, 140), (168, 56), (84, 84), (140, 112))
"""Of the five screenshots; every side is a multiple of 28, so an image has one token for each 28 x 28 pixels."""
COLOURS = ((220, 30, 30), (30, 200, 30), (30, 30, 220), (240, 240, 240), (210, 40, 20))
NEAR = 1e-4
OMITTED = "[image omitted]"


def screenshot(turn: int) -> bytes:
    """A PNG of one colour with some spots, another one each turn."""
    (width, height), colour, dice = SIZES[turn], COLOURS[turn], random.Random(turn)
    rows = bytearray()
    for _ in range(height):
        rows += b"\0"
        for _ in range(width):
            rows += bytes(colour) if dice.random() < 0.9 else bytes(dice.randrange(256) for _ in range(3))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(rows))) + chunk(b"IEND", b"")
    )


SHOTS = tuple(screenshot(turn) for turn in range(len(SIZES)))
HASHES = tuple(hashlib.sha256(shot).hexdigest() for shot in SHOTS)
TOKENS = tuple(width // 28 * (height // 28) for width, height in SIZES)


class ChatLooker:
    """The OpenAI SDK's chat completions."""

    def __init__(self, handle: RolloutHandle, stack: ExitStack) -> None:
        key = handle.agent_key or "none"
        self.client = stack.enter_context(OpenAI(base_url=handle.openai_base_url, api_key=key, max_retries=0))
        self.history: list[Any] = []

    def look(self, text: str, shot: bytes) -> None:
        url = f"data:image/png;base64,{base64.b64encode(shot).decode()}"
        image = {"type": "image_url", "image_url": {"url": url}}
        self.history.append({"role": "user", "content": [image, {"type": "text", "text": text}]})

    def forget(self, turn: int) -> None:
        self.history[2 * turn]["content"][0] = {"type": "text", "text": OMITTED}

    def ask(self) -> str:
        answer = self.client.chat.completions.create(
            model="tiny", messages=self.history, temperature=1.0, seed=len(self.history), max_tokens=24
        )
        said = answer.choices[0].message.content or ""
        self.history.append({"role": "assistant", "content": said})
        return said


class MessagesLooker:
    """The Anthropic SDK, streamed."""

    def __init__(self, handle: RolloutHandle, stack: ExitStack) -> None:
        key = handle.agent_key or "none"
        self.client = stack.enter_context(Anthropic(base_url=handle.anthropic_base_url, api_key=key, max_retries=0))
        self.history: list[Any] = []

    def look(self, text: str, shot: bytes) -> None:
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(shot).decode()}
        content = [{"type": "image", "source": source}, {"type": "text", "text": text}]
        self.history.append({"role": "user", "content": content})

    def forget(self, turn: int) -> None:
        self.history[2 * turn]["content"][0] = {"type": "text", "text": OMITTED}

    def ask(self) -> str:
        with self.client.messages.stream(model="tiny", messages=self.history, max_tokens=24) as stream:
            said = stream.get_final_text()
        self.history.append({"role": "assistant", "content": said})
        return said


LOOKERS: dict[str, Any] = {"chat": ChatLooker, "messages": MessagesLooker}


class Between:
    """Stands between Turnstile and the engine: keeps what the engine says it ran, and may change what it is asked."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.change: Callable[[dict[str, Any]], None] | None = None
        self.echoes: list[list[int]] = []
        self.ranges: list[list[tuple[int, int]]] = []
        self.statuses: list[int] = []

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        asked = json.loads(body) if request.path == GENERATE and body else {}
        counts = asked.get("stream", False)
        if counts and self.change is not None:
            self.change(asked)
            body = json.dumps(asked).encode()
        headers = {"content-type": request.headers.get("content-type", "application/json")}
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
            session.request(request.method, f"{self._url}{request.path_qs}", data=body, headers=headers) as found,
        ):
            answer = await found.read()
        if counts:
            self._keep(found.status, answer)
        return web.Response(status=found.status, body=answer, content_type=found.content_type)

    def _keep(self, status: int, answer: bytes) -> None:
        self.statuses.append(status)
        for line in answer.splitlines():
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if event.get("prompt_token_ids"):
                    self.echoes.append(event["prompt_token_ids"])
                    places = (event.get("mm_placeholders") or {}).get("image", ())
                    self.ranges.append([(each["offset"], each["length"]) for each in places])

    @contextmanager
    def serving(self) -> Generator[str]:
        started: list[str] = []
        ready = threading.Event()
        loop, stop = asyncio.new_event_loop(), asyncio.Event()

        async def serve() -> None:
            app = web.Application(client_max_size=1 << 28)
            app.router.add_route("*", "/{tail:.*}", self.pass_on)
            runner = web.AppRunner(app)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            started.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
            ready.set()
            await stop.wait()
            await runner.cleanup()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
        thread.start()
        assert ready.wait(10)
        try:
            yield started[0]
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(30)
            loop.close()


class Seen:
    """A Turnstile over the vision model."""

    def __init__(self, client: Client, between: Between, store: Path) -> None:
        self.client = client
        self.between = between
        self.store = store

    def exported(self, handle: RolloutHandle, file: Path) -> Rollout:
        """The rollout with its images beside it, found to be in order."""
        blobs = Blobs(self.store)

        class Stored:
            def side_bytes(self, kind: SideKind, name_sha256: str) -> bytes:
                return blobs.get(name_sha256)

        write(file, [handle.trajectory()], Stored())
        assert [str(each) for each in validate_file(file) if each.code.startswith(("E", "W6"))] == []
        (rollout,) = read(file)
        return rollout

    def forest(self, handle: RolloutHandle) -> Forest:
        with Reader.open(self.store) as reader:
            return Forest.of(reader.records(handle.rollout_id))


@pytest.fixture(scope="module")
def vision_folder(real_engines: Any) -> Path:
    return real_engines.install.models()["tiny-qwen2.5-vl"]


@pytest.fixture(scope="module")
def seen(real_engines: Any, vision_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """`TURNSTILE_VLLM_IMAGES` names a vLLM with the vision model that runs already."""
    url = real_engines.os.environ.get("TURNSTILE_VLLM_IMAGES")
    engine = real_engines.Attached(url) if url else real_engines.Vllm(checkpoint="tiny-qwen2.5-vl")
    between, store = Between(engine.url), tmp_path_factory.mktemp("store")
    with ExitStack() as stack:
        stack.callback(engine.kill)
        settings = Settings(
            engine=stack.enter_context(between.serving()),
            model="tiny",
            tokenizer=vision_folder,
            store=store,
            port=0,
        )
        yield Seen(stack.enter_context(serving(settings, say_nothing)), between, store)


@pytest.fixture(autouse=True)
def _nothing_changed(seen: Seen) -> Iterator[None]:
    seen.between.echoes.clear()
    seen.between.ranges.clear()
    seen.between.statuses.clear()
    yield
    seen.between.change = None


def ran(handle: RolloutHandle, seen: Seen) -> list[list[int]]:
    """By call: the ids that the engine said it ran, and those that it sampled."""
    nodes = seen.forest(handle).nodes
    return [[*echo, *node.choice.ids_S.tolist()] for echo, node in zip(seen.between.echoes, nodes, strict=True)]


def recomputed(real_engines: Any, folder: Path, file: Path) -> list[dict[str, float]]:
    program = Path(__file__).with_name("recompute_images.py")
    words = [str(real_engines.install.python()), str(program), str(folder), str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def check_numbers(real_engines: Any, folder: Path, file: Path, rollout: Rollout) -> None:
    """Transformers gives what the engine said, and something else where it is shown other pixels."""
    found = recomputed(real_engines, folder, file)
    assert [each["numbers"] for each in found] == [len(each.logprobs) for each in rollout.sequences]
    assert max(each["apart"] for each in found) <= NEAR
    # White stays white, so a sequence that ends with it says little.
    assert max(each["apart_with_other_images"] for each in found) > 100 * NEAR


@pytest.mark.parametrize("dialect", LOOKERS)
def test_a_growing_window_of_screenshots_is_one_sequence_as_the_engine_ran_it(
    seen: Seen, real_engines: Any, vision_folder: Path, tmp_path: Path, dialect: str
) -> None:
    with ExitStack() as stack, seen.client.rollout() as handle:
        agent = LOOKERS[dialect](handle, stack)
        for turn, shot in enumerate(SHOTS):
            agent.look(f"screen {turn}, which colour now", shot)
            agent.ask()
        rollout = seen.exported(handle, tmp_path / "growing.jsonl")
        (sequence,) = rollout.sequences
        assert [call.history for call in rollout.calls] == ["root"] + ["spliced"] * 4
        assert sequence.token_ids.tolist() == ran(handle, seen)[-1]
        assert [(each.offset, each.length) for each in sequence.media] == seen.between.ranges[-1]
        assert [(each.sha256, each.num_tokens, each.length, each.width, each.height) for each in sequence.media] == [
            (sha256, tokens, tokens, *size) for sha256, tokens, size in zip(HASHES, TOKENS, SIZES, strict=True)
        ]
        assert [call.usage.prompt_tokens for call in rollout.calls] == [len(echo) for echo in seen.between.echoes]
        assert [call.prompt_sha256 for call in rollout.calls] == [
            IdRun.of(echo).sha256() for echo in seen.between.echoes
        ]
        assert (rollout.token_counts.masked, rollout.token_counts.discarded) == ({}, {})
        assert all(call.complete for call in rollout.calls)
        assert [handle.media(sha256) for sha256 in HASHES] == list(SHOTS)
        check_numbers(real_engines, vision_folder, tmp_path / "growing.jsonl", rollout)


@pytest.mark.parametrize("dialect", LOOKERS)
def test_a_sliding_window_of_two_puts_earlier_answers_back_and_trains_each_token_once(
    seen: Seen, real_engines: Any, vision_folder: Path, tmp_path: Path, dialect: str
) -> None:
    with ExitStack() as stack, seen.client.rollout() as handle:
        agent = LOOKERS[dialect](handle, stack)
        for turn, shot in enumerate(SHOTS):
            agent.look(f"screen {turn}, which colour now", shot)
            if turn >= 2:
                agent.forget(turn - 2)
            agent.ask()
        rollout = seen.exported(handle, tmp_path / "sliding.jsonl")
        assert [call.history for call in rollout.calls] == ["root", "spliced", "forked", "forked", "forked"]
        assert {call.history_reason for call in rollout.calls[2:]} == {
            "media_changed:0",
            "media_changed:2",
            "media_changed:4",
        }
        assert [each.token_ids.tolist() for each in rollout.sequences] == ran(handle, seen)[1:]
        windows = [(0, 2), (1, 3), (2, 4), (3, 5)]
        assert [[each.sha256 for each in sequence.media] for sequence in rollout.sequences] == [
            list(HASHES[start:end]) for start, end in windows
        ]
        assert [[(each.offset, each.length) for each in sequence.media] for sequence in rollout.sequences] == (
            seen.between.ranges[1:]
        )
        replayed = [
            [part.call for part in sequence.segments if part.kind == "replayed"] for sequence in rollout.sequences
        ]
        assert replayed == [[], [0, 1], [0, 1, 2], [0, 1, 2, 3]]
        counts = rollout.token_counts
        assert (counts.trainable, counts.masked, counts.discarded) == (counts.sampled, {}, {})
        assert len(list((tmp_path / "sliding.jsonl.media").glob("??/*"))) == len(SHOTS)
        check_numbers(real_engines, vision_folder, tmp_path / "sliding.jsonl", rollout)


def expanded_already(asked: dict[str, Any]) -> None:
    asked["token_ids"] = [each for one in asked["token_ids"] for each in [one] * (TOKENS[0] if one == PAD else 1)]


def without_images(asked: dict[str, Any]) -> None:
    del asked["content_parts"]


def one_image_of_two(asked: dict[str, Any]) -> None:
    asked["content_parts"] = asked["content_parts"][:1]


def another_image(asked: dict[str, Any]) -> None:
    asked["content_parts"][0]["url"] = f"data:image/png;base64,{base64.b64encode(SHOTS[4]).decode()}"


WRONG: dict[str, tuple[int, Callable[[dict[str, Any]], None]]] = {
    "expanded ids and images": (1, expanded_already),
    "placeholders without an image": (1, without_images),
    "two placeholders and one image": (2, one_image_of_two),
    "another image in the place of a held one": (2, another_image),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_the_engine_answers_200_to_and_runs_wrongly_is_no_turn(seen: Seen, case: str) -> None:
    turns, change = WRONG[case]
    with ExitStack() as stack, seen.client.rollout() as handle:
        agent = ChatLooker(handle, stack)
        for turn in range(turns - 1):
            agent.look("which colour now", SHOTS[turn])
            agent.ask()
        agent.look("which colour now", SHOTS[turns - 1])
        seen.between.change = change
        with pytest.raises(openai.APIStatusError) as caught:
            agent.ask()
        assert seen.between.statuses[-1] == 200
        assert (caught.value.status_code, json.loads(caught.value.response.text)["error"]["code"]) == (
            502,
            "echo_mismatch",
        )
        forest = seen.forest(handle)
        assert forest.node_count == turns - 1
        seen.between.change = None
        agent.ask()
        assert all(call.complete for call in handle.trajectory().calls if call.sequence is not None)


def test_what_was_run_for_each_image_is_in_the_journal(seen: Seen) -> None:
    with ExitStack() as stack, seen.client.rollout() as handle:
        agent = ChatLooker(handle, stack)
        agent.look("which colour now", SHOTS[1])
        agent.ask()
        forest = seen.forest(handle)
    assert [(run.length, run.num_tokens) for run in known_runs(forest).values()] == [(TOKENS[1], TOKENS[1])]
    (state,) = forest.calls.values()
    assert isinstance(state.started.history, Root)
    (shown,) = state.started.images
    assert (shown.sha256, shown.media_type, shown.size_bytes, shown.width, shown.height) == (
        HASHES[1], "image/png", len(SHOTS[1]), *SIZES[1],
    )  # fmt: skip
