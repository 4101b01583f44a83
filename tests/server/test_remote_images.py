"""Images by their address: from listed hosts only, within bounds, and never out of a private network by a name."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from turnstile.conversation import Call, Image, Media, Message, Role, Sampling, Text
from turnstile.errors import CallerError
from turnstile.exchange.images import Gallery
from turnstile.generation import Draw, Root
from turnstile.history.forest import Forest
from turnstile.journal import CallStarted, RolloutOpened, ShownImage
from turnstile.protocols.media import MAX_IMAGE_BYTES, image_from_url
from turnstile.reasons import RootReason
from turnstile.server.remote_images import RemoteImages, is_public, listed_hosts
from turnstile.store import Blobs
from turnstile.tokens import IdRun

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def call_with(*media: Media) -> Call:
    message = Message(Role.USER, (Text("look"), *(each.image for each in media)))
    return Call("openai.chat", "m", (message,), media=tuple({each.sha256: each for each in media}.values()))


def test_listed_hosts_are_names_with_or_without_a_port_in_any_case() -> None:
    names = ("Images.Example.org", " 10.1.2.3:8080 ", "[::1]:80", "fd00::2", "localhost")
    assert listed_hosts(names) == {"images.example.org", "10.1.2.3:8080", "::1:80", "fd00::2", "localhost"}


@pytest.mark.parametrize("name", ["https://images.example.org", "a.org/b", "*.a.org", "u@a.org", "a.org:", ""])
def test_a_listed_host_that_no_address_can_match_is_refused_at_start(name: str) -> None:
    with pytest.raises(CallerError) as caught:
        listed_hosts(("a.org", name))
    assert (caught.value.code, caught.value.param) == ("invalid_value", "media_allow")
    assert f"`{name}`, which is no host. Give `HOST` or `HOST:PORT`" in str(caught.value)


class Host:
    """A host that gives what a test puts up, and counts what it was asked."""

    def __init__(self) -> None:
        self.pages: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {}
        self.asked: list[str] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        return await self.pages[request.path](request)

    def puts_up(self, path: str, body: bytes, status: int = 200, **headers: str) -> Media:
        async def page(_: web.Request) -> web.Response:
            return web.Response(body=body, status=status, headers=headers)

        self.pages[path] = page
        return self.named(path)

    def named(self, path: str, host: str = "127.0.0.1") -> Media:
        return image_from_url(f"http://{host}:{self.port}{path}", "at")

    @property
    def listed(self) -> RemoteImages:
        return RemoteImages(frozenset({f"127.0.0.1:{self.port}"}))


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    host = Host()
    app = web.Application()
    app.router.add_get("/{tail:.*}", host.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host.port = runner.addresses[0][1]
    yield host
    await runner.cleanup()


async def refused(remote: RemoteImages, *media: Media) -> CallerError:
    with pytest.raises(CallerError) as caught:
        await remote.fetched(call_with(*media), Forest(), None)
    assert caught.value.param == "at"
    return caught.value


async def test_an_image_of_a_listed_host_stands_in_the_place_of_its_address(host: Host, seeing: Any) -> None:
    picture = seeing.picture(56, 84)
    named = host.puts_up("/a.png", picture.data, **{"content-type": "text/plain"})
    call = await host.listed.fetched(call_with(named, named), Forest(), None)
    assert call.media == (msgspec.structs.replace(picture, url=named.url, field="at"),)
    assert call.messages[0].images == (picture.image, picture.image)
    assert host.asked == ["/a.png"]


async def test_what_came_by_its_bytes_and_by_an_address_is_one_image(host: Host, seeing: Any) -> None:
    picture = seeing.picture(56, 84)
    named = host.puts_up("/a.png", picture.data)
    call = await host.listed.fetched(call_with(picture, named), Forest(), None)
    assert [each.sha256 for each in call.media] == [picture.sha256]
    assert call.messages[0].images == (picture.image, picture.image)


async def test_nothing_is_asked_of_anybody_where_nothing_is_listed(host: Host, seeing: Any) -> None:
    error = await refused(RemoteImages(), host.puts_up("/a.png", seeing.png(9, 9)))
    assert (error.status, error.code, host.asked) == (400, "unsupported_value", [])
    plain = call_with(seeing.picture(28, 28))
    assert await RemoteImages().fetched(plain, Forest(), None) is plain


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.2:{port}/a.png", "http://127.0.0.1/a.png", "http://localhost:{port}/a.png",
        "http://x.127.0.0.1:{port}/a.png", "http://127.0.0.1:{port}@evil.test/a.png", "http://u:p@127.0.0.1:{port}/a.png",
        "http://evil.test\\@127.0.0.1:{port}/a.png", "http://2130706433:{port}/a.png", "http://127.1:{port}/a.png",
        "http://[::ffff:127.0.0.1]:{port}/a.png", "http://127.0.0.1:99999/a.png", "http:///a.png", "http://[/a.png",
        "http://xn--a.test/a.png", "http://xn--a/a.png",
    ],
)  # fmt: skip
async def test_an_address_that_only_looks_listed_is_refused(host: Host, seeing: Any, url: str) -> None:
    host.puts_up("/a.png", seeing.png(9, 9))
    error = await refused(host.listed, image_from_url(url.format(port=host.port), "at"))
    assert (error.code in ("unsupported_value", "image_not_fetched"), host.asked) == (True, [])


async def test_a_name_that_leads_into_a_private_network_is_not_gone_to(host: Host, seeing: Any) -> None:
    host.puts_up("/a.png", seeing.png(9, 9))
    remote = RemoteImages(frozenset({f"localhost:{host.port}"}))
    error = await refused(remote, host.named("/a.png", "localhost"))
    assert (error.code, host.asked) == ("image_not_fetched", [])


async def test_a_redirect_is_followed_on_the_list_and_not_off_it(host: Host, seeing: Any) -> None:
    picture = seeing.picture(28, 28)
    host.puts_up("/a.png", picture.data)
    near = host.puts_up("/near", b"", 302, location="/a.png")
    call = await host.listed.fetched(call_with(near), Forest(), None)
    assert [each.sha256 for each in call.media] == [picture.sha256]
    far = host.puts_up("/far", b"", 302, location=f"http://localhost:{host.port}/a.png")
    assert (await refused(host.listed, far)).code == "unsupported_value"
    file = host.puts_up("/file", b"", 302, location="file:///etc/passwd")
    assert (await refused(host.listed, file)).code == "unsupported_value"
    loop = host.puts_up("/loop", b"", 302, location="/loop")
    assert "redirected more than 3 times" in (await refused(host.listed, loop)).problem


async def test_a_body_that_is_no_image_is_refused(host: Host, seeing: Any) -> None:
    for path, body, status in (("/t", b"<html>", 200), ("/e", b"", 200), ("/4", seeing.png(9, 9), 404)):
        assert (await refused(host.listed, host.puts_up(path, body, status))).code == "image_not_fetched"
    packed = host.puts_up("/z", gzip.compress(bytes(1 << 20)), **{"content-encoding": "gzip"})
    assert "no PNG, JPEG, GIF or WebP" in (await refused(host.listed, packed)).problem


async def test_a_body_without_end_is_cut_off(host: Host) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1000):
            await response.write(bytes(1 << 20))
            sent += 1
        return response

    host.pages["/endless"] = endless
    assert "too large" in (await refused(host.listed, host.named("/endless"))).problem
    assert sent < MAX_IMAGE_BYTES / (1 << 20) + 40


async def test_all_images_of_a_request_together_are_bounded(host: Host, seeing: Any) -> None:
    named = [host.puts_up(f"/{at}", seeing.png(9, 9, at) + bytes(1000)) for at in range(5)]
    remote = msgspec.structs.replace(host.listed, max_bytes=3000)
    assert "together with the others" in (await refused(remote, *named)).problem


async def test_of_too_many_addresses_none_is_asked(host: Host, seeing: Any) -> None:
    picture = seeing.picture(28, 28)
    named = [host.puts_up(f"/{number}.png", picture.data) for number in range(3)]
    remote = RemoteImages(host.listed.hosts, most=2)
    error = await refused(remote, *named)
    assert (error.code, "past the first 2" in error.problem, host.asked) == ("invalid_value", True, [])
    assert len((await remote.fetched(call_with(*named[:2]), Forest(), None)).media) == 1


async def test_a_host_that_says_nothing_is_not_waited_for(host: Host) -> None:
    async def silent(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(5)
        return web.Response()

    host.pages["/silent"] = silent
    remote = msgspec.structs.replace(host.listed, patience_s=0.1)
    assert "within 0.1 seconds" in (await refused(remote, host.named("/silent"))).problem


async def test_a_host_that_is_not_there_is_an_error_of_the_request(host: Host) -> None:
    remote = RemoteImages(frozenset({"127.0.0.1:1"}))
    error = await refused(remote, image_from_url("http://127.0.0.1:1/a.png?sig=secret", "at"))
    assert (error.status, error.code) == (400, "image_not_fetched")
    assert "secret" not in str(error)


async def test_one_address_is_one_image_for_a_rollout_as_the_model_saw_it(
    host: Host, seeing: Any, tmp_path: Path
) -> None:
    then = seeing.picture(28, 28)
    named = host.puts_up("/a.png", seeing.png(99, 99))
    gallery = Gallery(Blobs(tmp_path))
    await gallery.keep([then])
    shown = ShownImage(1, then.sha256, "image/png", len(then.data), 28, 28, named.address_sha256)
    root = Root(RootReason.FIRST_CALL)
    started = CallStarted(
        "r", "c0", NOW, "openai.chat", "h", None, "e", "1", None, 0, IdRun.of([1, 7]), (), "", root, 0, (), Sampling(),
        Draw(), "", images=(shown,), placeholder_id=7,
    )  # fmt: skip
    forest = Forest.of([RolloutOpened("r", 1, NOW), started])
    call = await host.listed.fetched(call_with(named), forest, gallery)
    assert call.media == (msgspec.structs.replace(then, url=named.url, field="at"),)
    assert call.messages[0].images == (Image(then.sha256, "image/png"),)
    assert host.asked == []


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True), ("2606:2800:220:1::1", True), ("10.0.0.1", False), ("127.0.0.1", False),
        ("169.254.169.254", False), ("100.64.0.1", False), ("0.0.0.0", False), ("224.0.0.1", False), ("::1", False),
        ("fd00::1", False), ("fe80::1%eth0", False), ("::ffff:10.0.0.1", False), ("::ffff:93.184.216.34", True),
        ("64:ff9b::a00:1", False), ("2002:a00:1::", False), ("255.255.255.255", False), ("192.168.1.1", False),
    ],
)  # fmt: skip
def test_only_the_open_internet_is_public(address: str, public: bool) -> None:
    assert is_public(address) is public
