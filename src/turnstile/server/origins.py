"""What keeps web pages out where no keys are asked for.

A browser on the same machine reaches a loopback port, and takes any page there. Such a page can send requests that
change things without being let to read the answer (CSRF), and a page whose own name is made to lead to 127.0.0.1 may
read the answer too (DNS rebinding). Where keys are asked for, a page has none; where none are, these tell it:

- `Host` is what the page's address says, so it has to be a name that only this machine answers to, or one that was
  allowed;
- `Origin` is sent by browsers alone, with everything that is not a plain GET of the page's own server;
- `Sec-Fetch-Site` is sent by browsers alone too, also with images and scripts that a page asks for elsewhere.

Source: Fetch Standard ("Origin header"), W3C Fetch Metadata. Agents' clients send none of the last two: undici, which
is Node's, sends `Sec-Fetch-Mode` and only that.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable
from typing import TypeAlias, final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from turnstile.errors import CallerError
from turnstile.protocols.json_body import snippet

Refuse: TypeAlias = Callable[[Request, Exception], Awaitable[Response]]

_HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_.-]+))(?::\d{0,5})?")
_NAME = re.compile(r"[a-z0-9_.-]+|[0-9a-f:.]+")


def allowed_hosts(names: tuple[str, ...]) -> frozenset[str]:
    """The names of a setting, in lower case.

    Raises: CallerError `invalid_value` for one that no `Host` can match: with a scheme, a port, a path or a pattern.
    """
    hosts = frozenset(name.strip().lower().strip("[]") for name in names)
    for host in sorted(hosts):
        if not _NAME.fullmatch(host):
            raise CallerError(
                f"`allow_hosts` names `{snippet(host)}`, which is no host",
                "Give the name as clients write it, without scheme, port and path, such as host.docker.internal",
                code="invalid_value",
                param="allow_hosts",
            )
    return hosts


@final
class Doorkeeper:
    """Stands before an application and answers for it to whoever may be a web page."""

    def __init__(self, app: ASGIApp, allowed: frozenset[str], refuse: Refuse) -> None:
        """Guard an application.

        Args:
            app: what is asked when nothing is wrong.
            allowed: names that a `Host` may have beside those of loopback.
            refuse: makes the answer to an error.
        """
        self._app = app
        self._allowed = allowed
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's request, or refuse it before anything of it is read."""
        if scope["type"] == "http" and (error := stranger(scope["method"], Headers(scope=scope), self._allowed)):
            answer = await self._refuse(Request(scope, receive), error)
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)


def stranger(method: str, headers: Headers, allowed: frozenset[str]) -> CallerError | None:
    """Why a request may come from a web page of somebody else; None if it does not.

    Args:
        method: of the request.
        headers: all of them. One without `Host` is no browser's.
        allowed: names that a `Host` may have beside those of loopback.

    Returns: an error 403, `host_not_allowed` or `origin_not_allowed`.
    """
    hosts = [host.strip().lower() for host in headers.getlist("host")]
    for host in hosts:
        if not _is_ours(host, allowed):
            return CallerError(
                f"The request was sent to `{snippet(host)}`, and without an admin key only loopback's names are served",
                "Use 127.0.0.1 or localhost, start Turnstile with --allow-host NAME, or with an admin key",
                code="host_not_allowed",
                status=403,
            )
    is_own = all(_is_same_origin(origin, hosts) for origin in headers.getlist("origin"))
    if not is_own or _is_from_elsewhere(method, headers):
        return CallerError(
            "The request comes from a web page of another origin, and no keys are asked for here",
            "Send it from a program, or start Turnstile with an admin key",
            code="origin_not_allowed",
            status=403,
        )
    return None


def _is_ours(host: str, allowed: frozenset[str]) -> bool:
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = (found["address"] or found["name"]).rstrip(".")
    if name in allowed or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_same_origin(origin: str, hosts: list[str]) -> bool:
    try:
        parts = urlsplit(origin.strip().lower())
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc in hosts


def _is_from_elsewhere(method: str, headers: Headers) -> bool:
    """Whether a browser says that another site's page asks; a link that a person follows is no such thing."""
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return False
    return method != "GET" or headers.get("sec-fetch-dest") != "document"
