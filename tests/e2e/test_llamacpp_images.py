"""Screenshots through a whole Turnstile to a real llama.cpp, driven by the official OpenAI SDK.

The model has random weights: what it says makes no sense, so one word is forced.
"""

from __future__ import annotations

import base64
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from turnstile.client import Client, RolloutHandle
from turnstile.config import Settings
from turnstile.engines.smollm import say_nothing
from turnstile.server.local import serving
from turnstile.templates.tokenizer import Tokenizer
from turnstile.trajectory.files import write
from turnstile.trajectory.validate import validate_file

pytestmark = pytest.mark.engine

PROGRAM = Path(__file__).parents[1] / "fakes" / "tiny_vision.py"


@pytest.fixture(scope="module")
def folder(family: Callable[[str], Path]) -> Path:
    return family("qwen2.5-vl")


@pytest.fixture(scope="module")
def turnstile(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    made = tmp_path_factory.mktemp("tiny-vision")
    program = [sys.executable, str(PROGRAM), str(folder / "tokenizer.json"), str(made)]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as engine:
        assert engine.stdout is not None
        assert engine.stdin is not None
        url = engine.stdout.readline().strip()
        settings = Settings(engine=url, tokenizer=folder, store=made / "store", port=0, model="vl")
        with serving(settings, say_nothing) as client:
            yield client
        engine.stdin.close()
        engine.wait(10)


@pytest.fixture
def rollout(turnstile: Client) -> RolloutHandle:
    return turnstile.rollout()


@pytest.fixture
def agent(rollout: RolloutHandle) -> Iterator[OpenAI]:
    with OpenAI(base_url=rollout.openai_base_url, api_key=rollout.agent_key, max_retries=0) as agent:
        yield agent


def screenshot(width: int) -> dict[str, Any]:
    """A user's message with a grey picture, 84 pixels high."""

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress((b"\x00" + b"\x7f" * 3 * width) * 84)
    head = struct.pack(">IIBBBBB", width, 84, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", rows) + part(b"IEND", b"")
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "?"}],
    }


def test_three_screenshots_are_one_sequence_whose_images_have_their_tokens(
    agent: OpenAI,
    rollout: RolloutHandle,
    folder: Path,
    tokenizers_of: Callable[[Path], Tokenizer],
    tmp_path: Path,
) -> None:
    tokenizer = tokenizers_of(folder)
    (word,) = tokenizer.encode("red")
    messages: list[Any] = []
    histories, counted, cached = [], [], []
    for width in (112, 140, 112):
        messages.append(screenshot(width))
        raw = agent.chat.completions.with_raw_response.create(
            model="vl", messages=messages, max_tokens=1, logit_bias={str(word): 100}
        )
        answer = raw.parse()
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        assert answer.choices[0].message.content == "red"
        histories.append(raw.headers["x-turnstile-history"])
        counted.append(answer.usage.prompt_tokens)
        cached.append(answer.usage.prompt_tokens_details.cached_tokens)
        messages.append({"role": "assistant", "content": "red"})
    assert histories == ["root", "spliced", "spliced"]
    assert cached[1] >= counted[0]
    assert cached[2] >= counted[1]
    trajectory = rollout.trajectory()
    write(tmp_path / "rollout.jsonl", [trajectory])
    assert [str(found) for found in validate_file(tmp_path / "rollout.jsonl") if found.code.startswith("E")] == []
    (sequence,) = trajectory.sequences
    # 28 by 28 pixels are a token of this model: 4 by 3, 5 by 3 and 4 by 3.
    assert [each.length for each in sequence.media] == [12, 15, 12]
    assert sequence.complete
    assert len(sequence.token_ids) == counted[2] + 1
    pad = tokenizer.id_of("<|image_pad|>")
    assert sequence.token_ids.tolist().count(pad) == 12 + 15 + 12


def test_a_picture_that_the_engine_cannot_read_is_told_in_its_words(agent: OpenAI) -> None:
    broken: Any = screenshot(56)
    url = broken["content"][0]["image_url"]
    url["url"] = url["url"][:120] + "A" * 40
    with pytest.raises(openai.APIStatusError, match="image"):
        agent.chat.completions.create(model="vl", messages=[broken], max_tokens=1)
