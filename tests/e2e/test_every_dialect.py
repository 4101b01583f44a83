"""What holds in every dialect that is served: where the rollout is named, and what an answer's headers say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstile.errors import CallerError
from turnstile.protocols import COUNTERS, DIALECTS

ANTHROPIC, GEMINI = "anthropic.messages", "google.gemini"


def body(dialect: str, *texts: str) -> dict[str, Any]:
    """A conversation whose texts are the user's and the model's in turn."""
    turns = [("user" if at % 2 == 0 else "assistant", text) for at, text in enumerate(texts)]
    match dialect:
        case "openai.chat":
            return {"model": "m", "messages": [{"role": role, "content": text} for role, text in turns]}
        case "openai.responses":
            return {"model": "m", "input": [{"role": role, "content": text} for role, text in turns]}
        case "anthropic.messages":
            said = [{"role": role, "content": text} for role, text in turns]
            return {"model": "m", "max_tokens": 50, "messages": said}
        case "google.gemini":
            names = {"user": "user", "assistant": "model"}
            return {"contents": [{"role": names[role], "parts": [{"text": text}]} for role, text in turns]}
        case _:
            raise AssertionError(f"write a body for {dialect}")


class Way(msgspec.Struct, frozen=True):
    """One path of one dialect, asked for a whole answer or a stream."""

    dialect: str
    path: str
    stream: bool

    def __str__(self) -> str:
        return f"{self.path} {'streamed' if self.stream else 'whole'}"

    def ask(self, room: Any, base: str, *texts: str, headers: dict[str, str] | None = None, **sent: Any) -> Any:
        """Ask under a base URL; `query` and `content` may be given."""
        asked = body(self.dialect, *texts)
        if self.stream and self.dialect != GEMINI:
            asked["stream"] = True
        query = {**({"alt": "sse"} if self.stream and self.dialect == GEMINI else {}), **sent.get("query", {})}
        return room.http.post(
            f"{base}{self.path.replace('{model}', sent.get('model', 'm'))}",
            content=sent.get("content", json.dumps(asked)),
            headers={"content-type": "application/json", **(headers or {})},
            params=query,
        )


def ways() -> list[Way]:
    found: list[Way] = []
    for dialect in DIALECTS:
        for path in dialect.paths:
            if dialect.name == GEMINI:
                found.append(Way(dialect.name, path, "stream" in path))
            else:
                found += [Way(dialect.name, path, stream) for stream in (False, True)]
    return found


EVERY = pytest.mark.parametrize("way", ways(), ids=str)


def told(answer: Any) -> tuple[str | None, str | None, str | None]:
    said = answer.headers
    return said.get("x-turnstile-rollout"), said.get("x-turnstile-call"), said.get("x-turnstile-history")


def url(room: Any, rollout_id: str) -> str:
    return f"{room.client.url}/r/{rollout_id}"


@pytest.fixture(scope="module")
def keyed(wire_up: Callable[..., Any], tools_folder: Path) -> Iterator[Any]:
    """A server that asks for keys."""
    with wire_up(tools_folder, ["<|im_end|>"], admin_key="operators-key") as room:
        yield room


@EVERY
def test_an_answer_names_its_rollout_its_call_and_how_its_prompt_came_about(
    wired: Callable[..., Any], way: Way
) -> None:
    room = wired()
    room.script("A<|im_end|>", "B<|im_end|>", "C<|im_end|>")
    agent = room.agent()
    name, base = agent.handle.rollout_id, url(room, agent.handle.rollout_id)
    answers = [
        way.ask(room, base, "Hi"), way.ask(room, base, "Hi", "A", "More"), way.ask(room, base, "Hi", "X", "More"),
    ]  # fmt: skip
    assert [each.status_code for each in answers] == [200] * 3
    assert [told(each) for each in answers] == [
        (name, "c0", "root"), (name, "c1", "spliced"), (name, "c2", "forked:assistant_edited"),
    ]  # fmt: skip
    assert {each.headers["content-type"].startswith("text/event-stream") for each in answers} == {way.stream}
    assert agent.summary["kinds"] == {"turn": 3}


@EVERY
def test_an_answer_that_the_engine_failed_names_its_call_too(wired: Callable[..., Any], fakes: Any, way: Way) -> None:
    room = wired()
    room.fake.faults.append(fakes.Fault.ERROR_500)
    agent = room.agent()
    answer = way.ask(room, url(room, agent.handle.rollout_id), "Hi")
    assert answer.status_code >= 500
    assert told(answer) == (agent.handle.rollout_id, "c0", "root")


@EVERY
def test_a_refusal_names_the_rollout_in_the_dialects_shape(wired: Callable[..., Any], way: Way) -> None:
    room = wired()
    agent = room.agent()
    base = url(room, agent.handle.rollout_id)
    unread = way.ask(room, base, content=b"{")
    other = way.ask(room, base, "Hi", content=json.dumps(body(way.dialect, "Hi") | {"model": "n"}), model="n")
    agent.handle.finish()
    closed = way.ask(room, base, "Hi")
    nowhere = room.http.get(f"{base}/nowhere")
    assert [each.status_code for each in (unread, other, closed, nowhere)] == [400, 404, 409, 404]
    for answer in (unread, other, closed, nowhere):
        assert told(answer) == (agent.handle.rollout_id, None, None)
        assert answer.headers["request-id"].startswith("req_")
    (speaker,) = (each for each in DIALECTS if each.name == way.dialect)
    assert set(closed.json()) == set(json.loads(speaker.refuse(CallerError("a", "b"))))


KEYS: dict[str, Callable[[str], dict[str, dict[str, str]]]] = {
    "authorization": lambda key: {"headers": {"authorization": f"Bearer {key}"}},
    "x-api-key": lambda key: {"headers": {"x-api-key": key}},
    "x-goog-api-key": lambda key: {"headers": {"x-goog-api-key": key}},
    "?key=": lambda key: {"query": {"key": key}},
}
PLACES = pytest.mark.parametrize("place", KEYS)


@EVERY
@PLACES
def test_a_key_names_the_rollout_where_the_path_does_not(wired: Callable[..., Any], way: Way, place: str) -> None:
    room = wired()
    room.script("A<|im_end|>")
    agent = room.agent()
    answer = way.ask(room, room.client.url, "Hi", **KEYS[place](agent.handle.agent_key))
    assert (answer.status_code, told(answer)) == (200, (agent.handle.rollout_id, "c0", "root"))


@EVERY
@PLACES
def test_where_keys_are_asked_for_a_rollouts_own_opens_it_and_no_other(keyed: Any, way: Way, place: str) -> None:
    keyed.script("A<|im_end|>", "B<|im_end|>")
    mine, other = keyed.agent().handle, keyed.agent().handle
    base = url(keyed, mine.rollout_id)
    by_path, by_key = (way.ask(keyed, each, "Hi", **KEYS[place](mine.agent_key)) for each in (base, keyed.client.url))
    assert [told(each) for each in (by_path, by_key)] == [
        (mine.rollout_id, "c0", "root"), (mine.rollout_id, "c1", "root"),
    ]  # fmt: skip
    forged = f"ts_{mine.rollout_id}_{'0' * 32}"
    for refused in (
        way.ask(keyed, base, "Hi", **KEYS[place](other.agent_key)),
        way.ask(keyed, keyed.client.url, "Hi", **KEYS[place](forged)),
        way.ask(keyed, base, "Hi"),
    ):
        assert (refused.status_code, told(refused)) == (401, (mine.rollout_id, None, None))


@EVERY
def test_a_request_that_names_no_rollout_has_no_header_of_one(wired: Callable[..., Any], way: Way) -> None:
    answer = way.ask(wired(), wired().client.url, "Hi", headers={"x-api-key": "sk-123"})
    assert (answer.status_code, told(answer)) == (404, (None, None, None))


@pytest.mark.parametrize("path", [path for counter in COUNTERS for path in counter.paths])
def test_a_count_names_the_rollout_and_no_call(wired: Callable[..., Any], path: str) -> None:
    room = wired()
    agent = room.agent()
    place = f"{url(room, agent.handle.rollout_id)}{path.replace('{model}', 'm')}"
    counted = room.http.post(place, json=body(GEMINI if "models" in path else ANTHROPIC, "Hi"))
    refused = room.http.post(place, content=b"{")
    assert [counted.status_code, refused.status_code] == [200, 400]
    assert told(counted) == told(refused) == (agent.handle.rollout_id, None, None)


@pytest.mark.parametrize("named", ["a%0d%0ax-evil:%201", "%C3%A4", "..", "-x", "x" * 129])
def test_what_is_no_rollouts_id_is_never_given_back_in_a_header(wired: Callable[..., Any], named: str) -> None:
    room = wired()
    for path in ("v1/models/nope", "nowhere"):
        answer = room.http.get(f"{room.client.url}/r/{named}/{path}")
        assert (answer.status_code, told(answer)) == (404, (None, None, None))
        assert "x-evil" not in answer.headers
