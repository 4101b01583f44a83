"""Requests as bytes, and the official client behind a network edge that answers given bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from turnstile.conversation import Call
from turnstile.errors import CallerError
from turnstile.protocols import anthropic_decode as messages_api
from turnstile.protocols.base import WireRequest
from turnstile.protocols.chat_decode import AnswerForm, decode


@pytest.fixture
def wire_request() -> Callable[..., WireRequest]:
    """A request with one user message, changed by keyword; a field that is `...` is left out."""

    def build(headers: dict[str, str] | None = None, **fields: Any) -> WireRequest:
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
        kept = {name: value for name, value in body.items() if value is not ...}
        return WireRequest(json.dumps(kept).encode(), headers or {})

    return build


@pytest.fixture
def call_of(wire_request: Callable[..., WireRequest]) -> Callable[..., Call]:
    return lambda headers=None, **fields: decode(wire_request(headers, **fields))[0]


@pytest.fixture
def form_of(wire_request: Callable[..., WireRequest]) -> Callable[..., AnswerForm]:
    return lambda **fields: decode(wire_request(**fields))[1]


@pytest.fixture
def refusal_of(wire_request: Callable[..., WireRequest]) -> Callable[..., tuple[int, str, str, str]]:
    """Status, code, param and problem of the error that a request gets."""

    def refused(**fields: Any) -> tuple[int, str, str, str]:
        with pytest.raises(CallerError) as caught:
            decode(wire_request(**fields))
        error = caught.value
        assert error.remedy
        return error.status, error.code, error.param, error.problem

    return refused


@pytest.fixture
def answered_with() -> Iterator[Callable[..., openai.OpenAI]]:
    """An official client whose server answers these bytes, whatever it is asked."""
    clients: list[openai.OpenAI] = []

    def connect(body: bytes, media_type: str, status: int = 200) -> openai.OpenAI:
        def answer(_: httpx2.Request) -> httpx2.Response:
            # Small pieces: a client must not depend on where the network cuts.
            pieces = (body[at : at + 7] for at in range(0, len(body), 7))
            return httpx2.Response(status, headers={"content-type": media_type}, content=pieces)

        client = openai.OpenAI(
            api_key="k",
            base_url="http://engine.test/v1",
            max_retries=0,
            http_client=httpx2.Client(transport=httpx2.MockTransport(answer)),
        )
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def messages_request() -> Callable[..., WireRequest]:
    """An Anthropic request with one user message, changed by keyword; a field that is `...` is left out."""

    def build(headers: dict[str, str] | None = None, **fields: Any) -> WireRequest:
        body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], **fields}
        kept = {name: value for name, value in body.items() if value is not ...}
        return WireRequest(json.dumps(kept).encode(), headers or {})

    return build


@pytest.fixture
def messages_call(messages_request: Callable[..., WireRequest]) -> Callable[..., Call]:
    return lambda headers=None, **fields: messages_api.decode(messages_request(headers, **fields))[0]


@pytest.fixture
def messages_form(messages_request: Callable[..., WireRequest]) -> Callable[..., messages_api.AnswerForm]:
    return lambda **fields: messages_api.decode(messages_request(**fields))[1]


@pytest.fixture
def messages_refusal(messages_request: Callable[..., WireRequest]) -> Callable[..., tuple[int, str, str, str]]:
    """Status, code, param and problem of the error that an Anthropic request gets."""

    def refused(**fields: Any) -> tuple[int, str, str, str]:
        with pytest.raises(CallerError) as caught:
            messages_api.decode(messages_request(**fields))
        error = caught.value
        assert error.remedy
        return error.status, error.code, error.param, error.problem

    return refused


@pytest.fixture
def anthropic_answered() -> Iterator[Callable[..., anthropic.Anthropic]]:
    """An official client whose server answers these bytes, whatever it is asked."""
    clients: list[anthropic.Anthropic] = []

    def connect(body: bytes, media_type: str, status: int = 200) -> anthropic.Anthropic:
        def answer(_: httpx2.Request) -> httpx2.Response:
            # Small pieces: a client must not depend on where the network cuts.
            pieces = (body[at : at + 7] for at in range(0, len(body), 7))
            return httpx2.Response(status, headers={"content-type": media_type}, content=pieces)

        transport = httpx2.Client(transport=httpx2.MockTransport(answer))
        client = anthropic.Anthropic(api_key="k", base_url="http://engine.test", max_retries=0, http_client=transport)
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.close()
