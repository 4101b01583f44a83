from __future__ import annotations

import json

import pytest

from turnstile.conversation import Media
from turnstile.engines.base import Missing
from turnstile.engines.llamacpp_shapes import GenerationDefaults, Modalities, Props
from turnstile.engines.llamacpp_sight import ImageCounts, Sight, Spellings, look
from turnstile.engines.wire import WireAnswer
from turnstile.errors import EngineError
from turnstile.tokens import IdRun

PROPS = Props(1, GenerationDefaults(9), modalities=Modalities(vision=True), media_marker="<M>")


class Server:
    """Says how it shows an image of 4 tokens: one token a character, and a template that writes 20."""

    def __init__(self, leading="", before="[", behind="]", trailing=""):
        self.leading, self.before, self.behind, self.trailing = leading, before, behind, trailing
        self.refused = ""
        self.asked = []

    async def __call__(self, path, body):
        asked = json.loads(body)
        self.asked.append((path, asked))
        if path == self.refused:
            return WireAnswer(404, b'{"error":{"message":"File Not Found","type":"not_found_error"}}')
        return WireAnswer(200, json.dumps(self.said(path, asked)).encode())

    def said(self, path, asked):
        if path == "/tokenize":
            return {"tokens": [ord(each) for each in asked["content"]]}
        added = len(self.before + self.behind)
        if path == "/completion":
            first, second = asked["prompt"]["prompt_string"].split("<M>")
            echo = f"{self.leading}{first}{self.before}{self.behind}{second}{self.trailing}"
            return {"prompt": echo, "tokens_evaluated": len(echo) + 4}
        return {"input_tokens": 20 + added + 4}


@pytest.mark.parametrize(
    ("habits", "sight"),
    [
        ({}, Sight("", "[]", 22)),
        ({"before": "", "behind": ""}, Sight("", "", 20)),
        ({"leading": "^"}, Sight("^", "[]", 22)),
    ],
)
async def test_what_a_server_adds_is_seen_in_its_echo(habits, sight):
    assert await look(Server(**habits), PROPS) == sight


async def test_a_model_for_text_only_is_asked_nothing():
    server = Server()
    assert await look(server, Props(1, GenerationDefaults(9), media_marker="<M>")) is None
    assert server.asked == []


async def test_something_behind_the_prompt_is_not_understood():
    assert await look(Server(trailing="$"), PROPS) == Missing(
        "images",
        "It changes the text around a picture in a way that is not understood; messages with images are refused",
        "",
    )


@pytest.mark.parametrize("route", ["/completion", "/v1/chat/completions/input_tokens", "/tokenize"])
async def test_a_server_without_one_of_the_routes_cannot_be_given_images(route):
    server = Server()
    server.refused = route
    seen = await look(server, PROPS)
    assert isinstance(seen, Missing)
    assert (seen.what, seen.remedy) == ("images", "A llama.cpp server of October 2026 or later")
    assert "File Not Found" in seen.cost


async def test_an_image_is_counted_once():
    server = Server()
    counts = ImageCounts(server, Sight("", "[]", 22))
    image = Media("sha", "image/webp", b"x")
    assert [await counts.of(image), await counts.of(image)] == [4, 4]
    ((_, asked),) = server.asked
    url = {"url": "data:image/webp;base64,eA=="}
    assert asked == {"messages": [{"content": [{"image_url": url, "type": "image_url"}], "role": "user"}]}


async def test_only_what_was_found_exact_is_remembered():
    server = Server()
    spellings = Spellings(server)
    right, wrong = IdRun.of([97, 98]), IdRun.of([97, 99])
    assert [await spellings.is_exact(run, "ab") for run in (right, right, wrong, wrong)] == [True, True, False, False]
    assert len(server.asked) == 3


async def test_a_route_that_fails_is_a_refusal():
    server = Server()
    server.refused = "/tokenize"
    with pytest.raises(EngineError, match="status 404"):
        await Spellings(server).of("a")
