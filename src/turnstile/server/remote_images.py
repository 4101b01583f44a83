"""Images that a request names by an address: refused, or fetched from the hosts that an operator allowed.

A proxy that fetches for its clients can be used to reach what they cannot. So there is a list of exact hosts, empty
by default; a name on it that leads to an address of a private network is not gone to, nor is a redirect off the list.
What was fetched for a rollout is kept: the same address is the same image in all its later calls, as the model saw it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from turnstile.conversation import Call, Image, Media, Message, is_plain
from turnstile.errors import CallerError
from turnstile.exchange.images import Gallery
from turnstile.history.forest import Forest
from turnstile.protocols.json_body import snippet
from turnstile.protocols.media import MAX_IMAGE_BYTES, distinct_media, image_from_bytes, refuse_remote, told

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_MOST_REDIRECTS = 3
_AT_ONCE = 4
_CHUNK_BYTES = 64 * 1024
_HOST = re.compile(r"(?:[\w.-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?|[0-9a-f:.]+")


def listed_hosts(names: tuple[str, ...]) -> frozenset[str]:
    """The hosts of a setting, in lower case and without brackets.

    Raises: CallerError `invalid_value` for one that no address can match: with a scheme, a path, a pattern or a user.
    """
    hosts = frozenset(name.strip().lower() for name in names)
    for host in sorted(hosts):
        if not _HOST.fullmatch(host):
            raise CallerError(
                f"`media_allow` names `{host[:80]}`, which is no host",
                "Give `HOST` or `HOST:PORT`, each by its full name: no scheme, no path, no pattern",
                code="invalid_value",
                param="media_allow",
            )
    # A parsed address has its host without the brackets that an IPv6 one is written in.
    return frozenset(host.translate({ord("["): None, ord("]"): None}) for host in hosts)


class RemoteImages(msgspec.Struct, frozen=True):
    """What is fetched, and from where."""

    hosts: frozenset[str] = frozenset()
    """Exact names, in lower case, or `name:port`; a name alone stands for its ports 80 and 443. An address of a
    network instead of a name is taken at its word, private or not. Empty: nothing is fetched."""
    patience_s: float = 20.0
    """For one image, redirects included."""
    max_bytes: int = 32 * 1024 * 1024
    """Of all images that one request has fetched."""
    most: int = 500
    """Addresses that one request may name; with more, nothing is asked of anybody."""

    async def fetched(self, call: Call, forest: Forest, gallery: Gallery | None) -> Call:
        """The call with the bytes of all its images.

        Args:
            call: some of its images may only have an address.
            forest: what its rollout has been shown; an address that is there already is not asked again.
            gallery: where the bytes of those are.

        Raises: CallerError naming the field, for a host that is not allowed or an address that gives no image.
        """
        named = [each for each in call.media if each.url and not each.data]
        if not named:
            return call
        if not self.hosts:
            refuse_remote(named)
        found = await _seen(named, forest, gallery)
        missing = [each for each in named if each.sha256 not in found]
        found |= zip((each.sha256 for each in missing), await self._all(missing), strict=True)
        return _with(call, found)

    async def _all(self, named: list[Media]) -> list[Media]:
        if not named:
            return []
        if len(named) > self.most:
            raise _too_many(named[self.most], self.most)
        for each in named:
            self._check(_parsed(each.url, each), each)
        turns, budget = asyncio.Semaphore(_AT_ONCE), _Budget(self.max_bytes)
        connector = aiohttp.TCPConnector(resolver=_PublicOnly(), use_dns_cache=False)
        timeout = aiohttp.ClientTimeout(total=None)
        # Nothing is unpacked on the way: a few bytes of gzip could become gigabytes.
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:

            async def one(media: Media) -> Media:
                async with turns:
                    return await self._one(session, media, budget)

            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(one(each)) for each in named]
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _one(self, session: aiohttp.ClientSession, media: Media, budget: _Budget) -> Media:
        try:
            async with asyncio.timeout(self.patience_s):
                data = await self._read(session, media, budget)
        except TimeoutError:
            raise _no_image(media, f"did not come within {self.patience_s:g} seconds") from None
        except (aiohttp.ClientError, OSError) as broken:
            raise _no_image(media, f"could not be fetched: {type(broken).__name__}") from None
        image = image_from_bytes(data)
        if image is None:
            raise _no_image(media, f"is {len(data)} bytes that are no PNG, JPEG, GIF or WebP image")
        return msgspec.structs.replace(image, url=media.url, field=media.field)

    async def _read(self, session: aiohttp.ClientSession, media: Media, budget: _Budget) -> bytes:
        url = _parsed(media.url, media)
        for _ in range(1 + _MOST_REDIRECTS):
            self._check(url, media)
            headers = {"accept": "image/*", "accept-encoding": "identity", "user-agent": "turnstile"}
            async with session.get(url, allow_redirects=False, headers=headers) as response:
                if response.status in _REDIRECTS and (onward := response.headers.get("location")):
                    url = url.join(_parsed(onward, media))
                    continue
                if response.status != 200:
                    raise _no_image(media, f"was answered with status {response.status}")
                return await _body(response, media, budget)
        raise _no_image(media, f"was redirected more than {_MOST_REDIRECTS} times")

    def _check(self, url: URL, media: Media) -> None:
        """Raises: CallerError if the host is not on the list."""
        host = (url.host or "").lower().rstrip(".")
        plain = url.scheme in ("http", "https") and url.user is None and url.password is None
        listed = f"{host}:{url.port}" in self.hosts or (host in self.hosts and url.port in (80, 443))
        if not plain or not listed:
            raise CallerError(
                f"`{media.field}`: images are not fetched from {snippet(host)}",
                "Send the image itself in base64, or have its host allowed (--media-allow)",
                code="unsupported_value",
                param=media.field,
            )


class _Budget:
    """Bytes that a request may still have fetched."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, count: int) -> bool:
        self.left -= count
        return self.left >= 0


async def _body(response: aiohttp.ClientResponse, media: Media, budget: _Budget) -> bytes:
    data = bytearray()
    async for piece in response.content.iter_chunked(_CHUNK_BYTES):
        data += piece
        if len(data) > MAX_IMAGE_BYTES or not budget.take(len(piece)):
            raise _no_image(media, "is too large, alone or together with the others of this request")
    return bytes(data)


class _PublicOnly(AbstractResolver):
    """Resolves names as the system does, and gives no address that is not on the open internet.

    It stands in the connector itself, so what was checked is what is gone to.
    """

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await aiohttp.ThreadedResolver().resolve(host, port, family)
        if any(not is_public(each["host"]) for each in found):
            raise PrivateAddressError(f"{host} is in a private network")
        return found

    async def close(self) -> None:
        """Hold nothing."""


class PrivateAddressError(OSError):
    """A name leads into a private network."""


def is_public(address: str) -> bool:
    """Whether an address is on the open internet; what an IPv6 address wraps or translates counts too."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner is not None:
            return inner.is_global and not inner.is_multicast
        if found in _TRANSLATED:
            return is_public(str(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)))
    return found.is_global and not found.is_multicast


_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv4 behind a translator (RFC 6052)."""


async def _seen(named: list[Media], forest: Forest, gallery: Gallery | None) -> dict[str, Media]:
    """By the hash of its address: what the rollout was shown under it before."""
    asked = {each.sha256: each for each in named} if gallery is not None else {}
    found: dict[str, Media] = {}
    for state in forest.calls.values():
        for shown in state.started.images:
            address = shown.address_sha256
            if gallery is not None and address in asked and address not in found:
                kept = await gallery.media_of(Image(shown.sha256, shown.media_type))
                found[address] = msgspec.structs.replace(kept, url=asked[address].url, field=asked[address].field)
    return found


def _with(call: Call, found: dict[str, Media]) -> Call:
    """The call with images in the place of their addresses."""

    def shown(message: Message) -> Message:
        if is_plain(message) or not any(image.sha256 in found for image in message.images):
            return message
        parts = (found[p.sha256].image if isinstance(p, Image) and p.sha256 in found else p for p in message.parts)
        return msgspec.structs.replace(message, parts=tuple(parts))

    media = distinct_media(found.get(each.sha256, each) for each in call.media)
    return msgspec.structs.replace(call, messages=tuple(map(shown, call.messages)), media=media)


def _parsed(address: str, media: Media) -> URL:
    try:
        url = URL(address)
        # A name is taken out of punycode only where it is asked for, and then it may turn out to be none.
        _ = url.host
    except ValueError:
        raise _no_image(media, "has no address that can be read") from None
    return url


def _too_many(media: Media, most: int) -> CallerError:
    problem = f"`{media.field}`: the image is past the first {most} that would have to be fetched"
    return CallerError(problem, "Send fewer images", code="invalid_value", param=media.field)


def _no_image(media: Media, why: str) -> CallerError:
    return CallerError(
        f"`{media.field}`: the image at {told(media.url)} {why}",
        "Check the address, or send the image itself in base64",
        code="image_not_fetched",
        param=media.field,
    )
