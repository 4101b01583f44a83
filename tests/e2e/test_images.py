"""Images through a whole Turnstile over a vLLM that is only wire, in every dialect: what arrives, what is refused."""

from __future__ import annotations

import base64
import json
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from turnstile.config import Settings
from turnstile.engines.smollm import say_nothing
from turnstile.errors import CallerError
from turnstile.server.local import serving
from turnstile.templates.tokenizer import Tokenizer
from turnstile.trajectory.files import write
from turnstile.trajectory.validate import FileCheck, UnknownMeaning

pytestmark = pytest.mark.families

PAD = 151655
GENERATE = "/inference/v1/generate"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def size_of(data: bytes) -> tuple[int, int]:
    return struct.unpack(">II", data[16:24])


def tokens(url: str) -> int:
    """One for each 28 x 28 pixels."""
    width, height = size_of(base64.b64decode(url.partition(",")[2]))
    return width // 28 * (height // 28)


class Dialect(msgspec.Struct, frozen=True):
    """How one dialect writes what this file says."""

    path: str
    image: Callable[[bytes], dict[str, Any]]
    remote: Callable[[str], dict[str, Any]]
    text: Callable[[str], dict[str, Any]]
    body: Callable[[list[Any]], dict[str, Any]]
    user: Callable[[list[Any]], Any]
    answer: Callable[[str], Any]
    message: Callable[[dict[str, Any]], str]
    """The text of an error."""


DIALECTS = {
    "chat": Dialect(
        "/v1/chat/completions",
        lambda data: {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded(data)}"}},
        lambda url: {"type": "image_url", "image_url": {"url": url}},
        lambda text: {"type": "text", "text": text},
        lambda messages: {"model": "m", "messages": messages},
        lambda parts: {"role": "user", "content": parts},
        lambda text: {"role": "assistant", "content": text},
        lambda error: error["error"]["message"],
    ),
    "responses": Dialect(
        "/v1/responses",
        lambda data: {"type": "input_image", "image_url": f"data:image/png;base64,{encoded(data)}"},
        lambda url: {"type": "input_image", "image_url": url},
        lambda text: {"type": "input_text", "text": text},
        lambda messages: {"model": "m", "input": messages},
        lambda parts: {"role": "user", "content": parts},
        lambda text: {"role": "assistant", "content": [{"type": "output_text", "text": text}]},
        lambda error: error["error"]["message"],
    ),
    "messages": Dialect(
        "/v1/messages",
        lambda data: {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": encoded(data)},
        },
        lambda url: {"type": "image", "source": {"type": "url", "url": url}},
        lambda text: {"type": "text", "text": text},
        lambda messages: {"model": "m", "max_tokens": 20, "messages": messages},
        lambda parts: {"role": "user", "content": parts},
        lambda text: {"role": "assistant", "content": text},
        lambda error: error["error"]["message"],
    ),
    "gemini": Dialect(
        "/v1beta/models/m:generateContent",
        lambda data: {"inlineData": {"mimeType": "image/png", "data": encoded(data)}},
        lambda url: {"fileData": {"mimeType": "image/png", "fileUri": url}},
        lambda text: {"text": text},
        lambda contents: {"contents": contents},
        lambda parts: {"role": "user", "parts": parts},
        lambda text: {"role": "model", "parts": [{"text": text}]},
        lambda error: error["error"]["message"],
    ),
}


class Standing:
    """A Turnstile that shows images, and the engine behind it."""

    def __init__(self, client: Any, fake: Any, tokenizer: Tokenizer, store: Path) -> None:
        self.client = client
        self.fake = fake
        self.tokenizer = tokenizer
        self.store = store
        self.http = httpx.Client(timeout=60)

    def asked(self, dialect: Dialect, rollout: Any, messages: list[Any], **fields: Any) -> httpx.Response:
        return self.http.post(
            f"{rollout.base_url}{dialect.path}", content=json.dumps({**dialect.body(messages), **fields})
        )

    def script(self, *texts: str) -> None:
        self.fake.script(*(self.tokenizer.encode(f"{text}<|im_end|>").tolist() for text in texts))

    @property
    def generated(self) -> list[dict[str, Any]]:
        """What the engine was asked for calls; what it was asked at start is forgotten before."""
        return [body for path, body in self.fake.requests if path == GENERATE]


@pytest.fixture(scope="module")
def folder(family: Callable[[str], Path]) -> Path:
    return family("qwen2.5-vl")


@pytest.fixture(scope="module")
def stand(
    load_fake: Callable[[str], Any],
    folder: Path,
    tokenizers_of: Callable[[Path], Tokenizer],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Standing]]:
    """Starts one with any setting replaced, and ends all."""
    tokenizer = tokenizers_of(folder)
    special = frozenset(token.id for token in tokenizer.added if token.special)
    rows = [tokenizer.token_bytes(token_id) for token_id in range(tokenizer.size)]
    with ExitStack() as stack:

        def stand(**changes: Any) -> Standing:
            fake = load_fake("vllm_fake").VllmFake(
                rows,
                special=special,
                eos=frozenset(tokenizer.encode("<|im_end|>")),
                model="m",
                encode=lambda text: tokenizer.encode(text).tolist(),
                placeholder_id=PAD,
                image_tokens=tokens,
                logit=lambda token: 0.0,
            )
            store = tmp_path_factory.mktemp("store")
            url = stack.enter_context(fake.in_thread())
            plain = Settings(engine=url, tokenizer=folder, store=store, port=0)
            client = stack.enter_context(serving(msgspec.structs.replace(plain, **changes), say_nothing))
            standing = Standing(client, fake, tokenizer, store)
            stack.callback(standing.http.close)
            fake.requests.clear()
            return standing

        yield stand


@pytest.fixture(scope="module")
def standing(stand: Callable[..., Standing]) -> Standing:
    return stand(max_images=3, max_image_megapixels=1.0, max_body_bytes=64 << 20)


@pytest.fixture(autouse=True)
def _nothing_left(standing: Standing) -> Iterator[None]:
    yield
    standing.fake.forget()
    standing.fake.requests.clear()


@pytest.mark.parametrize("name", DIALECTS)
def test_two_screenshots_in_two_turns_are_one_sequence(
    standing: Standing, seeing: Any, tmp_path: Path, name: str
) -> None:
    dialect, rollout = DIALECTS[name], standing.client.rollout()
    one, two = seeing.png(56, 84, 1), seeing.png(112, 28, 2)
    standing.script("A door.", "A window.")
    messages = [dialect.user([dialect.image(one), dialect.text("look")])]
    assert standing.asked(dialect, rollout, messages).status_code == 200
    messages += [dialect.answer("A door."), dialect.user([dialect.text("and"), dialect.image(two)])]
    second = standing.asked(dialect, rollout, messages)
    assert (second.status_code, second.headers["x-turnstile-history"]) == (200, "spliced")
    first, last = standing.generated
    assert [[part["url"] for part in body["content_parts"]] for body in (first, last)] == [
        [f"data:image/png;base64,{encoded(data)}" for data in shown] for shown in ([one], [one, two])
    ]
    assert [body["token_ids"].count(PAD) for body in (first, last)] == [1, 2]
    assert last["token_ids"][: len(first["token_ids"])] == first["token_ids"]
    file = tmp_path / "out.jsonl"
    write(file, [rollout.trajectory()])
    # Nobody could tell what numbers mean of which a thousand are equal.
    check = FileCheck(file, UnknownMeaning.ALLOWED)
    assert [str(each) for each in check.violations() if each.code.startswith("E")] == []
    (sequence,) = rollout.trajectory().sequences
    assert [(each.num_tokens, each.width, each.height) for each in sequence.media] == [(6, 56, 84), (4, 112, 28)]
    assert [rollout.media(each.sha256) for each in sequence.media] == [one, two]
    with pytest.raises(CallerError) as caught:
        rollout.media("00" * 32)
    assert (caught.value.code, caught.value.status) == ("media_not_found", 404)


def test_the_same_conversation_has_the_same_ids_in_every_dialect(standing: Standing, seeing: Any) -> None:
    shot = seeing.png(56, 56)
    for dialect in DIALECTS.values():
        standing.script("Yes.")
        parts = [dialect.text("see"), dialect.image(shot), dialect.text("this?")]
        assert standing.asked(dialect, standing.client.rollout(), [dialect.user(parts)]).status_code == 200
    assert len({tuple(body["token_ids"]) for body in standing.generated}) == 1


def test_an_image_in_a_tools_result_arrives_from_every_dialect_that_has_them(standing: Standing, seeing: Any) -> None:
    shot = seeing.png(56, 56)
    chat, responses, messages, gemini = DIALECTS.values()
    call = {"id": "a", "type": "function", "function": {"name": "shoot", "arguments": "{}"}}
    told: list[tuple[Dialect, list[Any]]] = [
        (chat, [
            chat.user([chat.text("look")]), {"role": "assistant", "content": "ok", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": [chat.text("shot"), chat.image(shot)]},
        ]),
        (responses, [
            responses.user([responses.text("look")]), responses.answer("ok"),
            {"type": "function_call", "call_id": "a", "name": "shoot", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": [responses.text("shot"), responses.image(shot)]},
        ]),
        (messages, [
            messages.user([messages.text("look")]),
            {"role": "assistant", "content": [
                messages.text("ok"), {"type": "tool_use", "id": "a", "name": "shoot", "input": {}},
            ]},
            messages.user([
                {"type": "tool_result", "tool_use_id": "a", "content": [messages.text("shot"), messages.image(shot)]},
            ]),
        ]),
        (gemini, [
            gemini.user([gemini.text("look")]),
            {"role": "model", "parts": [gemini.text("ok"), {"functionCall": {"name": "shoot", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {
                "name": "shoot", "response": {"output": "shot"}, "parts": [gemini.image(shot)],
            }}]},
        ]),
    ]  # fmt: skip
    for dialect, history in told:
        standing.script("Yes.")
        answer = standing.asked(dialect, standing.client.rollout(), history)
        assert answer.status_code == 200, answer.text
    assert [len(body["content_parts"]) for body in standing.generated] == [1] * 4
    assert len({tuple(body["token_ids"]) for body in standing.generated}) == 1


REFUSED: dict[str, tuple[Callable[[Any, Dialect], list[Any]], str]] = {
    "a small file of many pixels": (
        lambda seeing, dialect: [dialect.image(seeing.png(1, 1).replace(b"\0\0\0\1\0\0\0\1", b"\0\0\xff\0" * 2, 1))],
        "65280 x 65280 pixels",
    ),
    "one image too many": (lambda seeing, dialect: [dialect.image(seeing.png(28, 28))] * 4, "past the first 3 images"),
    "a file of 22 MB": (
        lambda seeing, dialect: [dialect.image(seeing.png(28, 28) + bytes(22_000_000))],
        "more than 20971520 bytes",
    ),
    "an address": (lambda _, dialect: [dialect.remote("https://10.0.0.1/a.png")], "would have to be fetched"),
    "no header": (lambda _, dialect: [dialect.image(b"\x89PNG\r\n\x1a\n" + bytes(40))], "does not say how large"),
    "the text of a placeholder": (
        lambda seeing, dialect: [dialect.image(seeing.png(28, 28)), dialect.text("<|image_pad|>")],
        "has the text '<|image_pad|>'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("name", DIALECTS)
def test_what_is_not_served_is_refused_in_the_dialects_own_words(
    standing: Standing, seeing: Any, name: str, case: str
) -> None:
    dialect, (parts, told) = DIALECTS[name], REFUSED[case]
    answer = standing.asked(dialect, standing.client.rollout(), [dialect.user(parts(seeing, dialect))])
    assert (answer.status_code, told in dialect.message(answer.json()), standing.generated) == (400, True, [])


@pytest.mark.parametrize("name", DIALECTS)
def test_a_body_of_a_hundred_megabytes_is_refused_before_it_is_read(standing: Standing, name: str) -> None:
    dialect, rollout = DIALECTS[name], standing.client.rollout()
    answer = standing.http.post(f"{rollout.base_url}{dialect.path}", content=b" " * 100_000_000)
    assert answer.status_code == 413
    assert dialect.message(answer.json())


def test_a_history_that_is_named_brings_its_images_from_the_store(standing: Standing, seeing: Any) -> None:
    dialect, rollout = DIALECTS["responses"], standing.client.rollout()
    shot = seeing.png(84, 56)
    standing.script("A door.", "Yes.")
    first = standing.asked(dialect, rollout, [dialect.user([dialect.image(shot)])]).json()
    second = standing.asked(dialect, rollout, [dialect.user([dialect.text("sure?")])], previous_response_id=first["id"])
    assert second.headers["x-turnstile-history"] == "spliced"
    assert [part["url"] for part in standing.generated[-1]["content_parts"]] == [
        f"data:image/png;base64,{encoded(shot)}"
    ]


def test_a_question_for_the_length_knows_how_long_an_image_was(standing: Standing, seeing: Any) -> None:
    dialect, rollout = DIALECTS["messages"], standing.client.rollout()
    shot = seeing.png(84, 84)
    messages = [dialect.user([dialect.image(shot)])]

    def counted() -> int:
        answer = standing.http.post(
            f"{rollout.base_url}/v1/messages/count_tokens", json={"model": "m", "messages": messages}
        )
        return answer.json()["input_tokens"]

    before = counted()
    standing.script("A door.")
    usage = standing.asked(dialect, rollout, messages).json()["usage"]
    assert (counted(), usage["input_tokens"]) == (before + 8, before + 8)


def test_a_client_is_told_of_an_engine_that_ran_another_prompt(standing: Standing, seeing: Any) -> None:
    standing.fake.image_tokens = lambda _: 1
    for dialect in DIALECTS.values():
        standing.script("A door.")
        rollout = standing.client.rollout()
        answer = standing.asked(dialect, rollout, [dialect.user([dialect.image(seeing.png(56, 56))])])
        assert (answer.status_code, "left the placeholder of image 0" in dialect.message(answer.json())) == (502, True)
        assert rollout.trajectory().sequences == ()
    standing.fake.image_tokens = tokens


def test_images_of_a_listed_host_are_fetched_once_for_a_rollout(stand: Callable[..., Standing], seeing: Any) -> None:
    shot = seeing.png(56, 56, 3)
    asked: list[str] = []

    class Host(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(shot)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Host)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        standing = stand(media_allow=(f"127.0.0.1:{server.server_port}",))
        url = f"http://127.0.0.1:{server.server_port}/a.png?sig=hush-4711"
        for dialect in DIALECTS.values():
            asked.clear()
            standing.fake.requests.clear()
            rollout = standing.client.rollout()
            standing.script("A door.", "Yes.")
            messages = [dialect.user([dialect.remote(url)])]
            assert standing.asked(dialect, rollout, messages).status_code == 200
            messages += [dialect.answer("A door."), dialect.user([dialect.text("sure?")])]
            assert standing.asked(dialect, rollout, messages).headers["x-turnstile-history"] == "spliced"
            assert [part["url"] for part in standing.generated[-1]["content_parts"]] == [
                f"data:image/png;base64,{encoded(shot)}"
            ]
            assert asked == ["/a.png?sig=hush-4711"]
        assert b"hush-4711" not in b"".join(file.read_bytes() for file in standing.store.rglob("*") if file.is_file())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
