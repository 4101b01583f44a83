from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager

import pytest

from turnstile.engines.wire import TRACE_HEADERS, Wire, refused
from turnstile.errors import EngineError

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class Script:
    """A server of raw bytes: for each connection, what each request on it is answered with; b"" hangs up."""

    def __init__(self, *connections):
        self.connections = list(connections)
        self.opened = 0
        self.heads = []

    async def __call__(self, reader, writer):
        answers = self.connections[self.opened]
        self.opened += 1
        for answer in answers:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), b":0")
            await reader.readexactly(int(length.partition(b":")[2]))
            if not answer:
                break
            writer.write(answer)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def wire_to(script, api_key=""):
    server = await asyncio.start_server(script, "127.0.0.1", 0)
    wire = Wire.open(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", api_key)
    try:
        yield wire
    finally:
        await wire.close()
        server.close()
        await server.wait_closed()


async def test_a_reused_connection_that_gives_no_byte_is_tried_once_on_a_fresh_one():
    script = Script([OK, b""], [OK])
    async with wire_to(script) as wire:
        await wire.get("/health")
        answer = await wire.post("/completion", b"{}")
    assert (answer.status, answer.body, script.opened) == (200, b"{}", 2)


async def test_two_connections_that_give_no_byte_are_a_failure():
    script = Script([b""], [b""], [OK])
    async with wire_to(script) as wire:
        with pytest.raises(EngineError, match="broke the connection before its answer was whole") as caught:
            await wire.post("/completion", b"{}")
    assert (caught.value.code, caught.value.status, script.opened) == ("engine_unreachable", 502, 2)


async def test_an_answer_that_breaks_off_is_a_failure_and_is_not_sent_again():
    half = OK.replace(b"content-length: 2", b"content-length: 99")
    script = Script([OK, half], [OK])
    async with wire_to(script) as wire:
        await wire.get("/health")
        with pytest.raises(EngineError, match="broke the connection"):
            await wire.post("/completion", b"{}")
    assert script.opened == 1


async def test_the_engines_key_is_sent_and_nothing_else_of_ours():
    script = Script([OK])
    async with wire_to(script, "secret") as wire:
        await wire.post("/completion", b"{}")
    assert b"authorization: bearer secret" in script.heads[0].lower()
    assert b"cookie" not in script.heads[0].lower()


@pytest.mark.parametrize("status", [b"401 Unauthorized", b"500 Oops", b"302 Found"])
async def test_a_refusal_that_repeats_the_engines_key_is_read_without_it(status):
    body = b'{"error": {"message": "Incorrect API key provided: planted-key."}}'
    refusal = b"HTTP/1.1 " + status + b"\r\ncontent-length: " + str(len(body)).encode() + b"\r\n\r\n" + body
    script = Script([refusal], [refusal])
    async with wire_to(script, api_key="planted-key") as wire:
        whole = await wire.post("/completion", b"{}")
        async with wire.stream("/completion", b"{}") as stream:
            streamed = await stream.whole()
    assert whole.body == streamed.body == body.replace(b"planted-key", b"[key]")


async def test_an_address_that_moved_is_used_from_then_on():
    first, second = Script([OK]), Script([OK])
    async with wire_to(first) as wire, wire_to(second) as other:
        wire.move_to(other.base_url)
        await wire.get("/health")
    assert (first.opened, second.opened) == (0, 1)


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("http://127.0.0.1:9", "Connection refused"),
        ("http://localhost:9", "Connection refused"),
    ],
)
async def test_an_engine_that_is_not_there_is_told_in_the_systems_own_words(url, cause):
    wire = Wire.open(url)
    with pytest.raises(EngineError) as caught:
        await wire.get("/health")
    await wire.close()
    assert re.fullmatch(rf"No engine answers at {url} \({cause}\)", caught.value.problem)


async def test_a_plain_server_behind_https_is_told_as_a_failure_of_tls():
    async def plain(reader, writer):
        await reader.read(1)
        writer.write(OK)
        await writer.drain()
        writer.close()

    async with wire_to(plain) as wire:
        wire.move_to(wire.base_url.replace("http:", "https:"))
        with pytest.raises(EngineError, match="TLS failed"):
            await wire.get("/health")


SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


async def test_a_stream_tells_each_event_as_it_comes():
    script = Script([SSE + chunk(b"data: 1\n\nda") + chunk(b"ta: 2\n\n") + b"0\r\n\r\n"])
    async with wire_to(script) as wire, wire.stream("/generate", b"{}") as stream:
        told = [event async for event in stream.events()]
    assert (stream.status, stream.is_events, told) == (200, True, [b"1", b"2"])


async def test_a_connection_is_used_again_behind_a_stream_that_was_read_to_its_end():
    script = Script([SSE + chunk(b"data: 1\n\n") + b"0\r\n\r\n", OK])
    async with wire_to(script) as wire:
        async with wire.stream("/generate", b"{}") as stream:
            assert [event async for event in stream.events()] == [b"1"]
        await wire.get("/health")
    assert script.opened == 1


async def test_a_connection_is_closed_when_a_stream_is_left_before_its_end():
    script = Script([SSE + chunk(b"data: 1\n\n")], [OK])
    async with wire_to(script) as wire:
        async with wire.stream("/generate", b"{}") as stream:
            assert await anext(stream.events()) == b"1"
        await wire.get("/health")
    assert script.opened == 2


async def test_a_stream_that_breaks_off_is_a_failure_behind_what_came():
    script = Script([SSE + chunk(b"data: 1\n\n")])
    async with wire_to(script) as wire, wire.stream("/generate", b"{}") as stream:
        events = stream.events()
        assert await anext(events) == b"1"
        with pytest.raises(EngineError, match="broke the connection"):
            await anext(events)
    assert script.opened == 1


async def test_a_stream_on_a_stale_connection_is_begun_once_more():
    script = Script([OK, b""], [SSE + chunk(b"data: 1\n\n") + b"0\r\n\r\n"])
    async with wire_to(script) as wire:
        await wire.get("/health")
        async with wire.stream("/generate", b"{}") as stream:
            assert [event async for event in stream.events()] == [b"1"]
    assert script.opened == 2


async def test_an_error_instead_of_a_stream_is_read_whole():
    script = Script([OK.replace(b"200 OK", b"400 Bad")])
    async with wire_to(script) as wire, wire.stream("/generate", b"{}") as stream:
        answer = await stream.whole()
    assert (stream.is_events, answer.status, answer.body) == (False, 400, b"{}")


async def test_a_request_says_which_trace_it_belongs_to_and_only_while_there_is_one():
    script = Script([OK, OK])
    async with wire_to(script) as wire:
        token = TRACE_HEADERS.set({"traceparent": "00-1-2-01"})
        await wire.post("/completion", b"{}")
        TRACE_HEADERS.reset(token)
        await wire.post("/completion", b"{}")
    assert [b"\r\ntraceparent: 00-1-2-01\r\n" in head for head in script.heads] == [True, False]


@pytest.mark.parametrize("status", [401, 403])
def test_an_engine_that_refuses_turnstiles_key_is_told_by_a_code_and_a_status_of_its_own(status):
    error = refused("vLLM", status, "Unauthorized", "Look into the engine's own log")
    assert (error.code, error.status) == ("engine_key_refused", 502)
    assert f"status {status}: Unauthorized" in error.problem
    assert "TURNSTILE_ENGINE_API_KEY" in error.remedy


def test_any_other_refusal_has_the_engines_status_and_words():
    error = refused("vLLM", 429, "", "Send fewer")
    assert (error.code, error.status, error.remedy) == ("engine_refused", 429, "Send fewer")
    assert error.problem == "vLLM refused the request with status 429: no message"
