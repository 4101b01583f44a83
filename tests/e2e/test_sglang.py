"""A whole Turnstile over an SGLang that is only wire, driven by the official OpenAI SDK."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from turnstile.client import Client
from turnstile.config import Settings
from turnstile.engines.smollm import say_nothing
from turnstile.server.local import serving
from turnstile.templates.tokenizer import Tokenizer
from turnstile.trajectory.files import write
from turnstile.trajectory.validate import validate_file

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call><|im_end|>'


class Standing:
    """A Turnstile over a fake SGLang, and a rollout on it."""

    def __init__(self, client: Client, fake: Any, tokenizer: Tokenizer) -> None:
        self.client = client
        self.fake = fake
        self.tokenizer = tokenizer
        self.handle = client.rollout()

    def begin(self, stack: ExitStack) -> OpenAI:
        """A new rollout, and an agent's SDK on it."""
        self.handle = self.client.rollout()
        sdk = OpenAI(base_url=self.handle.openai_base_url, api_key=self.handle.agent_key, max_retries=0)
        return stack.enter_context(sdk)

    def script(self, *answers: str) -> list[list[int]]:
        """What the engine samples next."""
        scripted = [self.tokenizer.encode(answer).tolist() for answer in answers]
        self.fake.script(*scripted)
        return scripted

    @property
    def prompts(self) -> list[list[int]]:
        """What the engine was asked, in order."""
        return [body["input_ids"] for body in self.fake.requests]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="session")
def _stand_once(
    family: Callable[[str], Path],
    tokenizers_of: Callable[[Path], Tokenizer],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Standing]]:
    with ExitStack() as stack:

        @cache
        def once(name: str, **changes: Any) -> Standing:
            folder = family(name)
            tokenizer = tokenizers_of(folder)
            end = tokenizer.id_of("<|im_end|>")
            assert end is not None
            fake = import_module("sglang_fake").SglangFake(
                import_module("wired").Rows(tokenizer),
                special=frozenset(token.id for token in tokenizer.added if token.special),
                eos=frozenset({end}),
                model="m",
                encode=lambda text: tokenizer.encode(text).tolist(),
                placeholder_id=tokenizer.id_of("<|image_pad|>") if name == "qwen2.5-vl" else None,
            )
            url = stack.enter_context(fake.in_thread())
            store = tmp_path_factory.mktemp("store")
            settings = Settings(engine=url, tokenizer=folder, store=store, port=0, grace_s=1.0, **changes)
            return Standing(stack.enter_context(serving(settings, say_nothing)), fake, tokenizer)

        yield once


@pytest.fixture
def stand(_stand_once: Callable[..., Standing]) -> Callable[..., Standing]:
    """A Turnstile over a fake SGLang that serves a family's model, started once for each."""

    def stand(name: str = "qwen3", **changes: Any) -> Standing:
        standing = _stand_once(name, **changes)
        fake = standing.fake
        fake.forget()
        return standing

    return stand


def exported(standing: Standing, folder: Path) -> Any:
    """The rollout's trajectory, found to be without fault."""
    trajectory = standing.handle.trajectory()
    write(folder / "rollout.jsonl", [trajectory])
    assert [str(found) for found in validate_file(folder / "rollout.jsonl") if found.code.startswith("E")] == []
    return trajectory


@pytest.mark.parametrize("incremental", [False, True], ids=["cumulative", "incremental"])
def test_three_turns_with_a_tool_are_spliced_and_exported(
    stand: Callable[..., Standing], stack: ExitStack, tmp_path: Path, incremental: bool
) -> None:
    standing = stand()
    standing.fake.incremental = incremental
    sdk = standing.begin(stack)
    answers = standing.script(
        f"<think>\nI ask.\n</think>\n\n{CALL}",
        "<think>\nI know.\n</think>\n\nIt rains in Oslo.<|im_end|>",
        "<think>\nThanks.\n</think>\n\nYou are welcome.<|im_end|>",
    )
    messages: list[Any] = [{"role": "user", "content": "Does it rain in Oslo?"}]
    first = sdk.chat.completions.create(model="m", messages=messages, tools=[WEATHER], max_tokens=99)  # type: ignore[list-item]
    called = first.choices[0].message
    assert called.tool_calls is not None
    assert called.tool_calls[0].function.arguments == '{"city": "Oslo"}'  # type: ignore[union-attr]
    messages += [called, {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "rain"}]
    second = sdk.chat.completions.create(model="m", messages=messages, tools=[WEATHER], max_tokens=99)  # type: ignore[list-item]
    assert second.choices[0].message.content == "It rains in Oslo."
    messages += [second.choices[0].message, {"role": "user", "content": "Thank you."}]
    with sdk.chat.completions.with_streaming_response.create(
        model="m",
        messages=messages,
        tools=[WEATHER],  # type: ignore[list-item]
        max_tokens=99,
        stream=True,
    ) as streamed:
        assert streamed.headers["x-turnstile-history"] == "spliced"
        text = "".join(chunk.choices[0].delta.content or "" for chunk in streamed.parse() if chunk.choices)
    assert text == "You are welcome."
    prompts = standing.prompts
    for earlier, answer, later in zip(prompts, answers, prompts[1:], strict=False):
        assert later[: len(earlier) + len(answer)] == earlier + answer
    (sequence,) = exported(standing, tmp_path).sequences
    assert sequence.token_ids.tolist() == prompts[2] + answers[2]
    spans = [(part.start, part.end) for part, _ in sequence.sampled_segments()]
    assert [sequence.token_ids.tolist()[start:end] for start, end in spans] == answers
    numbers = [standing.fake.logprob(token) for answer in answers for token in answer]
    assert sequence.logprobs.tolist() == pytest.approx(numbers, abs=1e-5)


def test_the_stream_reaches_the_client_while_the_engine_samples(
    stand: Callable[..., Standing], stack: ExitStack
) -> None:
    standing = stand()
    standing.fake.incremental = True
    sdk = standing.begin(stack)
    standing.script("<think>\n\n</think>\n\nOne two three four five six.<|im_end|>")
    standing.fake.token_delay_s = 0.01
    stream = sdk.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "Count."}], max_tokens=99, stream=True
    )
    told = ""
    for chunk in stream:
        told += chunk.choices[0].delta.content or ""
        if "two" in told:
            # The engine stands still now; the words before came through all the same.
            standing.fake.held = True
            break
    assert told.strip().startswith("One two")
    assert "six" not in told
    standing.fake.held = False
    stream.close()


def test_choices_are_requests_of_their_own(stand: Callable[..., Standing], stack: ExitStack) -> None:
    standing = stand()
    sdk = standing.begin(stack)
    standing.script("<think>\n\n</think>\n\nred<|im_end|>", "<think>\n\n</think>\n\nblue<|im_end|>")
    answer = sdk.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "A colour."}], max_tokens=99, n=2
    )
    assert {choice.message.content for choice in answer.choices} == {"red", "blue"}
    assert [body["sampling_params"]["n"] for body in standing.fake.requests] == [1, 1]
    assert standing.prompts[0] == standing.prompts[1]


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("RETOKENIZED", 502),
        ("WRONG_COUNT", 502),
        ("ERROR_EVENT", 500),
        ("CUT", 502),
        ("BUSY", 503),
        ("NAN_HAPPENED", 502),
    ],
)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_no_turn_comes_of_an_answer_that_went_wrong_and_the_next_one_is_spliced(
    stand: Callable[..., Standing], stack: ExitStack, tmp_path: Path, fault: str, status: int, streamed: bool
) -> None:
    standing = stand()
    sdk = standing.begin(stack)
    answers = standing.script("<think>\n\n</think>\n\nOne.<|im_end|>")
    messages: list[Any] = [{"role": "user", "content": "Count."}]
    first = sdk.chat.completions.create(model="m", messages=messages, max_tokens=99).choices[0].message
    messages += [first, {"role": "user", "content": "Go on."}]
    standing.script("<think>\n\n</think>\n\nTwo, three and four.<|im_end|>")
    standing.fake.faults.append(import_module("sglang_fake").Fault[fault])
    with pytest.raises(openai.APIError) as caught:
        if streamed:
            for _ in sdk.chat.completions.create(model="m", messages=messages, max_tokens=99, stream=True):
                pass
        else:
            sdk.chat.completions.create(model="m", messages=messages, max_tokens=99)
    if isinstance(caught.value, openai.APIStatusError):
        assert caught.value.status_code == status
    else:
        assert streamed
    answers += standing.script("<think>\n\n</think>\n\nTwo.<|im_end|>")
    second = sdk.chat.completions.create(model="m", messages=messages, max_tokens=99)
    assert second.choices[0].message.content == "Two."
    (sequence,) = exported(standing, tmp_path).sequences
    spans = [(part.start, part.end) for part, _ in sequence.sampled_segments()]
    assert [sequence.token_ids.tolist()[start:end] for start, end in spans] == answers


def test_a_number_that_is_none_masks_its_tokens(
    stand: Callable[..., Standing], stack: ExitStack, tmp_path: Path
) -> None:
    standing = stand()
    sdk = standing.begin(stack)
    standing.script("<think>\n\n</think>\n\nOne.<|im_end|>")
    standing.fake.faults.append(import_module("sglang_fake").Fault.CLAMPED)
    sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "Count."}], max_tokens=99)
    (sequence,) = exported(standing, tmp_path).sequences
    assert [part.trainable for part, _ in sequence.sampled_segments()] == [False]
    assert set(sequence.logprobs.tolist()) == {None}


def test_a_weight_update_in_mid_answer_splits_its_tokens_by_version(
    stand: Callable[..., Standing], stack: ExitStack, tmp_path: Path
) -> None:
    standing = stand()
    sdk = standing.begin(stack)
    (answer,) = standing.script("<think>\n\n</think>\n\nOne two three.<|im_end|>")
    standing.fake.weight_version, standing.fake.updates = "7", {4: "8"}
    sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "Count."}], max_tokens=99)
    (sequence,) = exported(standing, tmp_path).sequences
    split = [
        (part.end - part.start, part.policy_version_min, part.policy_version_max)
        for part, _ in sequence.sampled_segments()
    ]
    assert split == [(4, 7, 7), (len(answer) - 4, 8, 8)]


def test_an_answer_that_a_weight_update_aborts_is_an_error_and_no_turn(
    stand: Callable[..., Standing], stack: ExitStack
) -> None:
    standing = stand()
    sdk = standing.begin(stack)
    standing.script("<think>\n\n</think>\n\nOne two three.<|im_end|>")
    standing.fake.faults.append(import_module("sglang_fake").Fault.UPDATE)
    with pytest.raises(openai.InternalServerError) as caught:
        sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "Count."}], max_tokens=99)
    assert caught.value.status_code == 503
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["code"] == "engine_aborted"
    assert standing.handle.trajectory().sequences == ()


@pytest.mark.parametrize("incremental", [False, True], ids=["cumulative", "incremental"])
@pytest.mark.parametrize("fault", ["UPDATE", "UPDATE_IN_QUEUE", "UPDATE_JOINED"])
def test_an_aborted_answer_is_taken_up_again_where_that_is_wanted(
    stand: Callable[..., Standing], stack: ExitStack, tmp_path: Path, incremental: bool, fault: str
) -> None:
    standing = stand("qwen3", continue_aborted=1)
    standing.fake.incremental = incremental
    sdk = standing.begin(stack)
    (answer,) = standing.script("<think>\n\n</think>\n\nOne two three.<|im_end|>")
    cut = 3 if fault == "UPDATE" else 2
    standing.fake.script(answer[cut:])
    standing.fake.weight_version = "7"
    standing.fake.faults.append(import_module("sglang_fake").Fault[fault])
    told = sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "Count."}], max_tokens=99)
    assert told.choices[0].message.content == "One two three."
    first, second = standing.prompts
    assert second == first + answer[:cut]
    (sequence,) = exported(standing, tmp_path).sequences
    assert sequence.token_ids.tolist() == first + answer
    assert [part.policy_version_min for part, _ in sequence.sampled_segments()] == [7]


def png(width: int) -> str:
    """A picture of one colour, as a data URL; each width is another picture."""

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress((b"\x00" + b"\x7f" * 3 * width) * 28)
    head = struct.pack(">IIBBBBB", width, 28, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", rows) + part(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def shown(text: str, width: int) -> dict[str, Any]:
    image = {"type": "image_url", "image_url": {"url": png(width)}}
    return {"role": "user", "content": [{"type": "text", "text": text}, image]}


def test_screenshots_go_as_bytes_beside_collapsed_ids_and_are_exported_expanded(
    stand: Callable[..., Standing], stack: ExitStack, tmp_path: Path
) -> None:
    standing = stand("qwen2.5-vl")
    pad = standing.tokenizer.id_of("<|image_pad|>")
    sdk = standing.begin(stack)
    answers = standing.script("A square.<|im_end|>", "A bar.<|im_end|>")
    messages: list[Any] = [shown("What is it?", 28)]
    first = sdk.chat.completions.create(model="m", messages=messages, max_tokens=99).choices[0].message
    messages += [first, shown("And this?", 56)]
    sdk.chat.completions.create(model="m", messages=messages, max_tokens=99)
    sent = standing.fake.requests
    assert [body["image_data"] for body in sent] == [[png(28)], [png(28), png(56)]]
    assert [body["input_ids"].count(pad) for body in sent] == [1, 2]
    assert sent[1]["input_ids"][: len(sent[0]["input_ids"])] == sent[0]["input_ids"]
    (sequence,) = exported(standing, tmp_path).sequences
    runs = [standing.fake.image_tokens(base64.b64decode(png(width).partition(",")[2])) for width in (28, 56)]
    expected: list[int] = []
    left = iter(runs)
    for token in sent[1]["input_ids"]:
        expected += [token] * (next(left) if token == pad else 1)
    assert sequence.token_ids.tolist() == expected + answers[1]
    assert [each.length for each in sequence.media] == runs


def test_an_image_that_the_engine_tokenized_away_is_an_error_and_no_turn(
    stand: Callable[..., Standing], stack: ExitStack
) -> None:
    standing = stand("qwen2.5-vl")
    sdk = standing.begin(stack)
    standing.script("A square.<|im_end|>")
    standing.fake.faults.append(import_module("sglang_fake").Fault.RETOKENIZED)
    with pytest.raises(openai.APIStatusError, match="image_in_wrong_place") as caught:
        sdk.chat.completions.create(model="m", messages=[shown("What is it?", 28)], max_tokens=99)  # type: ignore[list-item]
    assert caught.value.status_code == 502
    assert standing.handle.trajectory().sequences == ()
