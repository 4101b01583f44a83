"""Who may do what: an operator's key everything, a reader's what changes nothing, an agent's one rollout's model."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import final

from starlette.requests import Request

from turnstile.errors import CallerError
from turnstile.exchange.rollouts import ROLLOUT_ID, OpenRollout

_AGENT_KEY = re.compile(r"ts_(?P<rollout>[A-Za-z0-9][A-Za-z0-9._-]{0,127}?)_(?P<secret>[0-9a-f]{32})")
_IN_PATH = re.compile(r"/r/(?P<rollout>[^/]+)(?:/|$)")
_NAMED_KEY = re.compile(r"ts_(?P<rollout>[A-Za-z0-9][A-Za-z0-9._-]{0,127})_[^_]*")


def mint_agent_key(rollout_id: str) -> str:
    """A fresh key that names its rollout: `ts_ROLLOUTID_SECRET`."""
    return f"ts_{rollout_id}_{secrets.token_hex(16)}"


def rollout_named_by(key: str) -> str:
    """The rollout that an agent's key names; empty if it names none. It proves nothing."""
    named = _AGENT_KEY.fullmatch(key) or _NAMED_KEY.fullmatch(key)
    return named["rollout"] if named else ""


def presented_key(headers: Mapping[str, str]) -> str:
    """The key that a client sent, in any of the places where the dialects' clients put it."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and bearer.strip():
        return bearer.strip()
    return headers.get("x-api-key", "") or headers.get("x-goog-api-key", "")


def agent_headers(request: Request) -> Mapping[str, str]:
    """An agent's headers, with the key that stands in its address put among them.

    Source: Google's API takes `?key=` beside `x-goog-api-key`.
    """
    key = request.query_params.get("key", "")
    return {**request.headers, "x-goog-api-key": key} if key else request.headers


def named_rollout(request: Request) -> str:
    """The rollout that a request names by its address or its agent's key; empty if none. It need not exist.

    It may go into a header of the answer: nothing that is no rollout's id is given back.
    """
    in_path = _IN_PATH.match(request.url.path)
    named = in_path["rollout"] if in_path else rollout_named_by(presented_key(agent_headers(request)))
    return named if ROLLOUT_ID.fullmatch(named) else ""


def keys_in(setting: str) -> tuple[str, ...]:
    """The keys that a setting names: one, or several with commas between them while one takes another's place."""
    return tuple(key for each in setting.split(",") if (key := each.strip()))


def check_keys(admin_key: str, read_key: str) -> tuple[str, ...]:
    """Look at the keys of the settings before anybody is asked for one.

    Returns: what an operator has to know of them, in sentences that show no key.
    Raises: CallerError `key_unusable` for keys that no header can carry, that guard nothing, or that open too much.
    """
    admins, readers = keys_in(admin_key), keys_in(read_key)
    for setting, written, found in (("admin_key", admin_key, admins), ("read_key", read_key, readers)):
        if (written and not found) or not all(_KEY.fullmatch(key) for key in found):
            remedy = "Use printable ASCII without spaces, such as `openssl rand -hex 32` prints; commas between several"
            raise CallerError(
                f"`{setting}` is no key that a header can carry", remedy, code="key_unusable", param=setting
            )
    if readers and not admins:
        raise _unusable("guards nothing without an admin key", "Set TURNSTILE_ADMIN_KEY too, or leave it out")
    if set(readers) & set(admins):
        raise _unusable("is an admin key too, so its holder may do everything", "Make a key of its own for readers")
    short = [name for name, found in (("admin", admins), ("read", readers)) if any(len(k) < _SHORT for k in found)]
    return tuple(f"The {name} key has fewer than {_SHORT} characters: it can be guessed" for name in short)


_KEY = re.compile(r"[!-~]+")
_SHORT = 16


def _unusable(problem: str, remedy: str) -> CallerError:
    return CallerError(f"`read_key` {problem}", remedy, code="key_unusable", param="read_key")


@final
class Keys:
    """What keys open, as the server was told at start. It holds their hashes only."""

    def __init__(self, admin_key: str, read_key: str = "") -> None:
        """Take the keys of the settings `admin_key` and `read_key`; see `keys_in`."""
        self._admin = _hashes(keys_in(admin_key))
        self._readers = (*self._admin, *_hashes(keys_in(read_key)))

    @property
    def required(self) -> bool:
        """Whether keys are asked for at all; if not, only loopback is served."""
        return bool(self._admin)

    def check_operator(self, headers: Mapping[str, str]) -> None:
        """Raises: CallerError 401 unless an operator's key was sent, or none is required."""
        if self.required and not _is_among(presented_key(headers), self._admin):
            reads = self.may_read(headers)
            raise CallerError(
                "A read key reads and changes nothing" if reads else "This call needs the operator's key",
                "Send `Authorization: Bearer KEY` with the operator's key, --admin-key or TURNSTILE_ADMIN_KEY",
                code="unauthorized",
                status=401,
            )

    def may_read(self, headers: Mapping[str, str]) -> bool:
        """Whether an operator's or a reader's key was sent, or none is required."""
        return not self.required or _is_among(presented_key(headers), self._readers)

    def check_reader(self, headers: Mapping[str, str]) -> None:
        """Raises: CallerError 401 unless an operator's or a reader's key was sent, or none is required."""
        if not self.may_read(headers):
            raise CallerError(
                "This call needs the operator's key or a reader's",
                "Send `Authorization: Bearer KEY` with the value of --admin-key or --read-key",
                code="unauthorized",
                status=401,
            )

    def check_agent(self, headers: Mapping[str, str], rollout: OpenRollout) -> None:
        """Raises: CallerError 401 unless the rollout's own key was sent, or none is required."""
        if self.required and not rollout.admits(presented_key(headers)):
            raise wrong_agent_key()


def _hashes(keys: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(map(_hash, keys))


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _is_among(key: str, hashes: Sequence[bytes]) -> bool:
    """Whether a key is one of them; the time it takes says neither which, nor how much of one is right."""
    sent = _hash(key)
    return sum(hmac.compare_digest(sent, each) for each in hashes) > 0


def wrong_agent_key() -> CallerError:
    """The one answer to every agent that may not come in: it does not say whether the rollout exists."""
    return CallerError(
        "The key does not open this rollout",
        "Use the `agent_key` that POST /rollouts answered for it",
        code="unauthorized",
        status=401,
    )
