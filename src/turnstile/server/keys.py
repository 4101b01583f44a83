"""Who may do what: an operator's key opens everything, an agent's key one rollout's model and nothing else."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping

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


class Keys:
    """What keys open, as the server was told at start."""

    def __init__(self, admin_key: str) -> None:
        self._admin = admin_key.encode()

    @property
    def required(self) -> bool:
        """Whether keys are asked for at all; if not, only loopback is served."""
        return bool(self._admin)

    def check_operator(self, headers: Mapping[str, str]) -> None:
        """Raises: CallerError 401 unless the operator's key was sent, or none is required."""
        if self.required and not hmac.compare_digest(presented_key(headers).encode(), self._admin):
            raise CallerError(
                "This call needs the operator's key",
                "Send `Authorization: Bearer KEY` with the value of --admin-key",
                code="unauthorized",
                status=401,
            )

    def check_agent(self, headers: Mapping[str, str], rollout: OpenRollout) -> None:
        """Raises: CallerError 401 unless the rollout's own key was sent, or none is required."""
        if self.required and not rollout.admits(presented_key(headers)):
            raise wrong_agent_key()


def wrong_agent_key() -> CallerError:
    """The one answer to every agent that may not come in: it does not say whether the rollout exists."""
    return CallerError(
        "The key does not open this rollout",
        "Use the `agent_key` that POST /rollouts answered for it",
        code="unauthorized",
        status=401,
    )
