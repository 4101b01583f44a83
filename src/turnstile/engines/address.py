"""An engine's address as a person writes it, checked before anything is asked of it."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from turnstile.errors import CallerError

EMBEDDED = "embedded"
"""What `--engine` says for the model that Turnstile ships."""

_BARE_HOST = re.compile(r"(?:localhost|[\w-]+(?:\.[\w-]+)+|[\w.-]+:\d+|\[[0-9a-fA-F:]+\](?::\d+)?)(?:/.*)?")
"""A host that could be meant: `localhost`, one with a dot, or anything with a port."""


def engine_url(target: str) -> str:
    """The base URL that a person gave, without a slash at its end.

    Raises: CallerError `engine_address` that says how to write it.
    """
    if "@" in target:
        # It would stand in `ps`, in errors and in logs; so it is not shown here either.
        raise _wrong(
            f"`…@{_without_query(target.rpartition('@')[2])}` has a user or password in it",
            "Leave them out; a key for the engine goes into TURNSTILE_ENGINE_API_KEY",
        )
    parts = _split(target)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        if _BARE_HOST.fullmatch(target):
            raise _wrong(f"`{target}` is a URL without its scheme", f"Write http://{target.rstrip('/')}")
        raise _wrong(
            f"`{target}` is neither a URL nor `{EMBEDDED}`",
            f"Give the engine's address, such as http://127.0.0.1:8080, or `{EMBEDDED}` for the small model",
        )
    if parts.query or parts.fragment:
        raise _wrong(f"`{_without_query(target)}` has more than a path", "Give the address without `?` and `#`")
    path = parts.path.rstrip("/")
    if path.endswith("/v1"):
        base = parts._replace(path=path.removesuffix("/v1")).geturl()
        raise _wrong(f"`{target}` ends in /v1", f"Leave /v1 out: {base}")
    return parts._replace(path=path).geturl()


def _without_query(target: str) -> str:
    """What may be shown of an address: some put a key behind the `?`."""
    return re.split(r"[?#]", target)[0]


def _split(target: str) -> SplitResult | None:
    try:
        parts = urlsplit(target)
        _ = parts.port  # reading it is what checks it
    except ValueError:
        return None
    return parts


def _wrong(problem: str, remedy: str) -> CallerError:
    return CallerError(f"The engine {problem}", remedy, code="engine_address")


def not_served(url: str, what: str, server: str = "llama.cpp") -> CallerError:
    """The error for something else than an engine behind a good address.

    Args:
        url: the address.
        what: how it showed, such as `no /props`.
        server: what was looked for.
    """
    return CallerError(
        f"What answers at {url} is not {server}'s server ({what})",
        "Give the address of a llama.cpp, vLLM or SGLang server, and say which one it is with --engine-kind",
        code="engine_address",
    )
