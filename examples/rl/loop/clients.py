"""A `turnstile.Client` for a run that outlives the server: it waits through restarts and keeps what it fetched."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from turnstile.client import Client, JsonValue, RolloutHandle
from turnstile.errors import CallerError, TurnstileError
from turnstile.trajectory.format import Rollout

T = TypeVar("T")
PATIENCE_S = 120.0
PAUSE_S = 0.25


class PatientClient(Client):
    """Asks again while the server is away. `taken` holds each trajectory that was fetched, by its rollout's id."""

    def __init__(self, url: str) -> None:
        """As `Client`."""
        super().__init__(url)
        self.taken: dict[str, Rollout] = {}
        self.waits = 0
        """How often the server was away."""

    def rollout(self, rollout_id: str | None = None, **said: Any) -> RolloutHandle:
        """Open a rollout, by another name if an answer to an earlier try was lost."""
        del rollout_id
        return self._patiently(lambda: super(PatientClient, self).rollout(f"ro-{secrets.token_hex(8)}", **said))

    def trajectory(self, rollout_id: str, **said: Any) -> Rollout:
        """The rollout in the neutral format, which is also kept in `taken`."""
        found = super().trajectory(rollout_id, **said)
        self.taken[rollout_id] = found
        return found

    def get(self, path: str, **query: str) -> bytes:
        """As `Client.get`."""
        return self._patiently(lambda: super(PatientClient, self).get(path, **query))

    def post(self, path: str, body: Mapping[str, JsonValue], headers: Mapping[str, str] | None = None) -> bytes:
        """As `Client.post`; a rollout that an earlier, unanswered try closed is closed."""
        if path == "/rollouts":
            return super().post(path, body, headers)
        tries = 0

        def once() -> bytes:
            nonlocal tries
            tries += 1
            try:
                return super(PatientClient, self).post(path, body, headers)
            except CallerError as refused:
                if tries > 1 and path.endswith("/finish") and refused.code == "rollout_closed":
                    return b"{}"
                raise

        return self._patiently(once)

    def _patiently(self, ask: Callable[[], T]) -> T:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask()
            except TurnstileError as problem:
                if problem.code != "server_unreachable" or time.monotonic() > deadline:
                    raise
            self.waits += 1
            time.sleep(PAUSE_S)
