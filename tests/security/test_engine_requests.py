"""What an engine hears beside the prompt: its own key and what HTTP needs. Public case M4."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anthropic
import google.genai
import msgspec
import openai
import pytest

from turnstile.config import Settings
from turnstile.engines.smollm import say_nothing
from turnstile.server.fleet import engine_names
from turnstile.server.local import serving

ADMIN = "an-operators-own-key"
SENT = {
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "host",
    "user-agent",
}
"""Headers that an engine may be sent, by name."""
PLANTED = {
    "cookie": "session=planted", "x-api-key": "planted", "x-goog-api-key": "planted", "proxy-authorization": "planted",
    "x-forwarded-for": "10.9.8.7", "forwarded": "for=10.9.8.7", "x-forwarded-host": "planted.test", "via": "planted",
    "openai-organization": "planted", "anthropic-beta": "planted", "user-agent": "planted/1.0", "referer": "http://planted/",
    "x-stainless-lang": "planted", "x-request-id": "planted", "idempotency-key": "planted-retry", "accept": "planted/*",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "planted=1",
    "baggage": "planted=1", "x-data-parallel-rank": "1", "te": "trailers", "x-anything": "planted",
}  # fmt: skip
"""Headers of an agent's, none of which is the engine's business."""


class Two:
    """Two recording engines, each with a key of its own, and what a server over them is started with."""

    def __init__(self, fakes: list[Any], urls: list[str], settings: Settings) -> None:
        self.fakes = fakes
        self.names = engine_names(tuple(urls))
        self.settings = settings

    def keys_heard(self) -> list[set[str]]:
        """By engine: the `authorization` of everything that it was asked."""
        return [{headers.get("authorization", "") for _, headers in fake.heads} for fake in self.fakes]


@pytest.fixture
def two(fakes: Any, wires: Any, tools_folder: Path, tokenizers_of: Callable[..., Any], tmp_path: Path) -> Iterator[Two]:
    tokenizer = tokenizers_of(tools_folder)
    end = tokenizer.id_of("<|im_end|>")
    made = [
        fakes.LlamaFake(wires.Rows(tokenizer), special=frozenset({end}), eos=frozenset({end}), model="m", api_key=key)
        for key in ("first-engines-key", "second-engines-key")
    ]
    for fake in made:
        fake.answer = lambda _: [end]
    with ExitStack() as stack:
        urls = [stack.enter_context(fake.in_thread()) for fake in made]
        yield Two(
            made,
            urls,
            Settings(
                engine=urls[0],
                more_engines=(urls[1],),
                tokenizer=tools_folder,
                store=tmp_path / "store",
                port=0,
                admin_key=ADMIN,
            ),
        )


@pytest.mark.parametrize("order", [1, -1])
def test_each_engine_is_sent_its_own_key_and_never_anothers(two: Two, order: int) -> None:
    first, second = two.names
    listed = [f"{first}=first-engines-key", f"{second}=second-engines-key"]
    settings = msgspec.structs.replace(two.settings, engine_api_keys=",".join(listed[::order]))
    with serving(settings, say_nothing) as client:
        for _ in range(4):
            _say(client.rollout())
        assert client.get("/healthz")
    assert sum(fake.begun for fake in two.fakes) == 4
    assert two.keys_heard() == [{"Bearer first-engines-key"}, {"Bearer second-engines-key"}]


def test_a_key_for_one_engine_is_not_sent_to_one_that_has_none(two: Two) -> None:
    two.fakes[1].api_key = ""
    settings = msgspec.structs.replace(two.settings, engine_api_keys=f"{two.names[0]}=first-engines-key")
    with serving(settings, say_nothing) as client:
        _say(client.rollout())
    assert two.keys_heard() == [{"Bearer first-engines-key"}, {""}]


def test_a_key_for_all_is_what_an_engine_without_its_own_is_sent(two: Two) -> None:
    settings = msgspec.structs.replace(
        two.settings, engine_api_key="second-engines-key", engine_api_keys=f"{two.names[0]}=first-engines-key"
    )
    with serving(settings, say_nothing) as client:
        _say(client.rollout())
    assert two.keys_heard() == [{"Bearer first-engines-key"}, {"Bearer second-engines-key"}]


def _say(handle: Any) -> None:
    with openai.OpenAI(base_url=handle.openai_base_url, api_key=handle.agent_key, max_retries=0) as client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])


@pytest.mark.parametrize("dialect", ["openai.chat", "openai.responses", "anthropic.messages", "google.gemini"])
@pytest.mark.parametrize("stream", [False, True])
def test_case_m4_of_an_agents_headers_address_and_keys_nothing_reaches_the_engine(
    guarded: Any, speaking: Any, dialect: str, stream: bool
) -> None:
    agent = guarded.agent()
    talker = speaking.Talker(guarded, speaking.SPEAKERS[dialect], agent)
    guarded.script("A<|im_end|>")
    before = len(guarded.fake.heads)
    url = talker.speaker.url(agent.handle, stream)
    mark = "&" if "?" in url else "?"
    own = {"authorization": f"Bearer {agent.handle.agent_key}", "content-type": "application/json"}
    answer = guarded.http.post(
        f"{url}{mark}key={agent.handle.agent_key}&api_key=planted&secret=planted",
        content=talker.speaker.body("hi", stream=stream),
        headers={**PLANTED, **own},
    )
    assert answer.status_code == 200
    heard = guarded.fake.heads[before:]
    assert [target for target, _ in heard if target == "/completion"] != []
    for target, told in heard:
        assert "?" not in target
        assert set(told) <= SENT - {"authorization"}
        everything = f"{target} {told}"
        assert "planted" not in everything
        assert agent.handle.agent_key not in everything
        assert agent.handle.rollout_id not in everything


def test_case_m4_what_real_clients_send_of_themselves_stays_here(guarded: Any) -> None:
    guarded.fake.answer = lambda _: guarded.ids("A<|im_end|>")
    before = len(guarded.fake.heads)
    handle = guarded.agent().handle
    try:
        with openai.OpenAI(base_url=handle.openai_base_url, api_key=handle.agent_key, organization="planted") as client:
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
            client.responses.create(model="m", input="hi")
        with anthropic.Anthropic(base_url=handle.anthropic_base_url, api_key=handle.agent_key) as client:
            client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
        options = google.genai.types.HttpOptions(base_url=handle.base_url)
        with google.genai.Client(api_key=handle.agent_key, http_options=options) as client:
            client.models.generate_content(model="m", contents="hi")
    finally:
        guarded.fake.forget()
    heard = guarded.fake.heads[before:]
    assert len(heard) >= 4
    assert {name for _, told in heard for name in told} <= SENT - {"authorization"}
    assert not any("planted" in str(told) or handle.agent_key in str(told) for _, told in heard)
