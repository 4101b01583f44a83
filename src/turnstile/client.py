"""`turnstile.Client`: open rollouts, run agents against them, close them with a reward, fetch trajectories.

Plain blocking calls over the standard library, so that it can be used from any trainer's process.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from http.client import HTTPException
from types import TracebackType
from typing import Literal, SupportsFloat, SupportsIndex, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from turnstile.errors import CallerError, EngineError, TurnstileError
from turnstile.exchange.policy_log import PolicyPage
from turnstile.finished import WallClock, Wanted, finished_groups
from turnstile.store.tombstones import Tombstone
from turnstile.trajectory.format import Rollout, decode_line

T = TypeVar("T")
ROLLOUT_HEADER = "x-turnstile-rollout"
"""Says to a load balancer which rollout a request is about, where its path does not."""
JsonValue = str | int | float | bool | None | Mapping[str, "JsonValue"] | list["JsonValue"]


class _Opened(msgspec.Struct, frozen=True):
    rollout_id: str
    attempt: int
    agent_key: str
    base_url: str
    openai_base_url: str
    anthropic_base_url: str


class _Deleted(msgspec.Struct, frozen=True):
    deleted: tuple[Tombstone, ...]


class RolloutHandle:
    """A rollout that is being run. Leaving its `with` block without `finish` closes it.

    It is closed as completed, or as failed when the block raised; the reward stays unset, which means unscored.
    """

    def __init__(self, client: Client, opened: _Opened) -> None:
        self._client = client
        self._finished = False
        self.rollout_id = opened.rollout_id
        self.attempt = opened.attempt
        self.agent_key = opened.agent_key
        """Give it to the agent as its API key; it opens this rollout's model and nothing else."""
        self.base_url = opened.base_url
        self.openai_base_url = opened.openai_base_url
        """For `OPENAI_BASE_URL`."""
        self.anthropic_base_url = opened.anthropic_base_url
        """For `ANTHROPIC_BASE_URL`."""

    def __enter__(self) -> RolloutHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished:
            self.finish(status="completed" if error is None else "failed")

    def finish(
        self,
        *,
        reward: SupportsFloat | None = None,
        rewards: Mapping[str, SupportsFloat | None] | None = None,
        status: str = "completed",
        metadata: Mapping[str, JsonValue] | None = None,
    ) -> None:
        """Close the rollout; later calls of its agent are refused.

        Args:
            reward: the outcome, a number of any library; None = unscored, never 0.
            rewards: named parts of it, for people and trainers that want them.
            status: `completed`, `failed`, `truncated` or `aborted`.
            metadata: anything else, kept with the rollout.

        Raises: CallerError if it is closed already, or a number is not finite.
        """
        parts = {name: _finite(f"rewards[{name!r}]", value) for name, value in (rewards or {}).items()}
        outcome = _finite("reward", reward)
        body = {"status": status, "reward": outcome, "rewards": parts, "metadata": dict(metadata or {})}
        self._client.post(f"/rollouts/{quote(self.rollout_id)}/finish", body)
        self._finished = True

    def trajectory(self, *, exported_to: str = "") -> Rollout:
        """The rollout in the neutral format, as far as it has come; `exported_to` as in `Client.trajectory`."""
        return self._client.trajectory(self.rollout_id, exported_to=exported_to)

    def delete(self, *, unexported: Literal["keep", "delete"] = "keep") -> tuple[Tombstone, ...]:
        """Delete this attempt of the rollout, as `Client.delete` does."""
        return self._client.delete(self.rollout_id, attempt=self.attempt, unexported=unexported)

    def media(self, sha256: str) -> bytes:
        """The bytes of an image that its trajectory names. Raises: CallerError if it was shown none of this hash."""
        return self._client.media(self.rollout_id, sha256)


class Client:
    """A Turnstile server, as whoever runs rollouts sees it."""

    def __init__(self, url: str = "http://127.0.0.1:7000", *, admin_key: str = "", timeout_s: float = 60.0) -> None:
        """Talk to the server at `url`.

        Args:
            url: where `turnstile serve` says it listens.
            admin_key: the server's --admin-key; TURNSTILE_ADMIN_KEY if empty.
            timeout_s: seconds to wait for an answer.

        Raises: CallerError `server_address` if `url` is no URL, or an agent's.
        """
        self.url = _server_url(url)
        # A server may be given several while one takes another's place.
        self._admin_key = admin_key or os.environ.get("TURNSTILE_ADMIN_KEY", "").partition(",")[0].strip()
        self._timeout_s = timeout_s
        # An environment's proxy must not stand between a trainer and its own server.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opener.close()

    def rollout(  # noqa: PLR0913 - the members of POST /rollouts, all by name
        self,
        rollout_id: str | None = None,
        *,
        group_id: str | None = None,
        task_id: str | None = None,
        sample_index: int | None = None,
        parent_rollout_id: str | None = None,
        agent_name: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
    ) -> RolloutHandle:
        """Open a rollout, or the next attempt of a closed one.

        Raises: CallerError if a rollout with that id is open.
        """
        # Named here, not by the server, so that a load balancer can tell which process it belongs to.
        rollout_id = rollout_id or f"ro-{secrets.token_hex(8)}"
        said = {
            "rollout_id": rollout_id,
            "group_id": group_id,
            "task_id": task_id,
            "sample_index": sample_index,
            "parent_rollout_id": parent_rollout_id,
            "agent_name": agent_name,
            "metadata": dict(metadata or {}),
        }
        body = {name: value for name, value in said.items() if value is not None}
        opened = self.post("/rollouts", body, {ROLLOUT_HEADER: rollout_id})
        return RolloutHandle(self, msgspec.json.decode(opened, type=_Opened))

    def trajectory(self, rollout_id: str, *, exported_to: str = "") -> Rollout:
        """A rollout's latest attempt in the neutral format.

        Args:
            rollout_id: whose.
            exported_to: where it goes from here, in words; it is noted as exported then. Empty = it is only looked at.

        Raises: CallerError if there is none, or it is to be noted and still open.
        """
        found = decode_line(self.get(f"/rollouts/{quote(rollout_id)}/trajectory"))
        if exported_to:
            self.mark_exported(rollout_id, to=exported_to, attempt=found.attempt)
        return found

    def mark_exported(self, rollout_id: str, *, to: str, attempt: int | None = None) -> None:
        """Note that a closed attempt of a rollout is somewhere else now, so that retention may delete it here.

        Args:
            rollout_id: whose.
            to: where it is, in words: a file, a trainer.
            attempt: which; None = the latest.

        Raises: CallerError if it is open, deleted or was never there.
        """
        self.post(f"/rollouts/{quote(rollout_id)}/exported", {"to": to, "attempt": attempt})

    def delete(
        self, rollout_id: str, *, attempt: int | None = None, unexported: Literal["keep", "delete"] = "keep"
    ) -> tuple[Tombstone, ...]:
        """Delete a closed rollout; what stays is a tombstone for each attempt that went.

        Args:
            rollout_id: whose.
            attempt: which; None = all of them, or none if one of them has to stay.
            unexported: what becomes of an attempt that nobody has: it is kept, which is an error here, or deleted.

        Raises: CallerError `rollout_open`, `rollout_unexported`, `rollout_not_found`, or `rollout_deleted` already.
        """
        query = {"unexported": unexported} | ({} if attempt is None else {"attempt": str(attempt)})
        address = f"{self.url}/rollouts/{quote(rollout_id)}?{urlencode(query)}"
        return msgspec.json.decode(self._ask(urllib.request.Request(address, method="DELETE")), type=_Deleted).deleted

    def media(self, rollout_id: str, sha256: str) -> bytes:
        """The bytes of an image of a rollout. Raises: CallerError if it was shown none of this hash."""
        return self.get(f"/rollouts/{quote(rollout_id)}/media/{quote(sha256)}")

    def trajectories(
        self,
        *,
        group_id: str | Iterable[str] | None = None,
        group_size: int | None = None,
        timeout_s: float | None = None,
        exported_to: str = "trainer",
    ) -> Iterator[Rollout]:
        """Wait for groups of rollouts to be finished, and give their rollouts, a group after the other.

        A group is given whole, in the order in which its rollouts were opened, and no rollout twice. Only the latest
        attempt of a rollout counts, however it ended. The server is asked every 0.1 to 2 s and may be restarted
        meanwhile. When the next rollout behind a group is asked for, those of the group are noted as exported.

        Args:
            group_id: a group or several, after which the iterator ends; None = whatever finishes, without end.
            group_size: finished rollouts that make a group whole, of which no more are given; None = it is whole when
                none of its rollouts is running, for which all of them have to be open already.
            timeout_s: seconds to wait for the next whole group; None = for ever, and 120 s for a server that is away.
            exported_to: where they go, in words; empty = they are not noted as exported.

        Raises: TurnstileError `groups_unfinished` when that time has passed, or `server_unreachable`.
        """
        groups = (group_id,) if isinstance(group_id, str) else None if group_id is None else tuple(group_id)
        return finished_groups(self, Wanted(groups, group_size, timeout_s, exported_to), WallClock())

    def announce_policy(self, version: int, *, label: str = "", engine: str = "") -> None:
        """Say that an engine samples with this weight version from now on; calls that were held go on.

        Args:
            version: 0 or more.
            label: what the engine calls it; empty = the version is that of whatever the engine runs.
            engine: host and port of one of several; empty = all of them.

        Raises: CallerError if no engine has that name, or the label is another version by itself.
        """
        said = {"version": version, "label": label, "engine": engine}
        self.post("/policy", {name: value for name, value in said.items() if value != ""})

    def hold_policy(self, *, deadline_s: float, engine: str = "") -> PolicyPage:
        """Keep new requests back from an engine, or from all, until `announce_policy` or `release_policy`.

        Wait until `policy()` says that nothing is running any more before the weights are changed.

        Args:
            deadline_s: seconds after which --hold-expiry decides.
            engine: host and port of one of several; empty = all of them.
        """
        return self._policy(self.post("/policy/hold", {"deadline_s": deadline_s, "engine": engine}))

    def release_policy(self, *, engine: str = "") -> PolicyPage:
        """Let held calls go on under the version that was announced last."""
        return self._policy(self.post("/policy/release", {"engine": engine}))

    def policy(self) -> PolicyPage:
        """What was announced of each engine, whether its calls are held, and how many run and wait."""
        return self._policy(self.get("/policy"))

    def _policy(self, body: bytes) -> PolicyPage:
        return msgspec.json.decode(body, type=PolicyPage)

    def get(self, path: str, **query: str) -> bytes:
        """The body of GET path. Raises: CallerError, EngineError or TurnstileError as the server answered."""
        return self._ask(urllib.request.Request(f"{self.url}{path}{'?' + urlencode(query) if query else ''}"))

    def post(self, path: str, body: Mapping[str, JsonValue], headers: Mapping[str, str] | None = None) -> bytes:
        """The body of POST path. Raises: CallerError, EngineError or TurnstileError as the server answered."""
        try:
            content = json.dumps(body, default=_plain, allow_nan=False).encode()
        except ValueError as not_json:
            raise CallerError(
                f"The body for {path} holds what JSON cannot: {not_json}", "Send finite numbers"
            ) from None
        return self._ask(
            urllib.request.Request(
                f"{self.url}{path}", content, {"content-type": "application/json", **(headers or {})}
            )
        )

    def _ask(self, request: urllib.request.Request) -> bytes:
        if self._admin_key:
            request.add_header("authorization", f"Bearer {self._admin_key}")
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return answer.read()
        except urllib.error.HTTPError as refused:
            with refused:
                raise _error_of(refused.code, refused.read()) from None
        except (urllib.error.URLError, OSError, HTTPException) as unreachable:
            reason = getattr(unreachable, "reason", unreachable)
            raise TurnstileError(
                f"No answer from Turnstile at {self.url}: {reason}",
                "Check that `turnstile serve` runs there",
                code="server_unreachable",
            ) from None


def _finite(name: str, value: SupportsFloat | None) -> float | None:
    """A number of any library as a float; None stays None."""
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        raise CallerError(f"`{name}` is {number}", "Give a finite number, or None for unscored", param=name)
    return number


def _plain(value: object) -> JsonValue:
    """What JSON has for a number of another library, such as numpy's or torch's."""
    if isinstance(value, SupportsIndex):
        return int(value)
    if isinstance(value, SupportsFloat):
        return float(value)
    raise CallerError(f"A {type(value).__name__} cannot be sent", "Send numbers, texts, lists and objects")


_AGENTS_PATH = re.compile(r"(/r/[^/]+)?(/v1)?")


def _server_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise CallerError(
            f"`{url}` is not a server's URL",
            "Give it as `turnstile serve` prints it, such as http://127.0.0.1:7000",
            code="server_address",
        )
    path = parts.path.rstrip("/")
    if path and _AGENTS_PATH.fullmatch(path):
        raise CallerError(
            f"`{url}` is an address for agents",
            f"Give the server's own: {parts.scheme}://{parts.netloc}",
            code="server_address",
        )
    return parts._replace(path=path).geturl()


class _Problem(msgspec.Struct, frozen=True):
    message: str = ""
    code: str | None = None


class _Refusal(msgspec.Struct, frozen=True):
    error: _Problem


def _error_of(status: int, body: bytes) -> TurnstileError:
    try:
        problem = msgspec.json.decode(body, type=_Refusal).error
    except msgspec.DecodeError:
        problem = _Problem(body[:200].decode(errors="replace"))
    kind = CallerError if status < 500 else EngineError
    return kind(problem.message.rstrip("."), "", code=problem.code or "", status=status)
