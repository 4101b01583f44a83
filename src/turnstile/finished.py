"""Waiting for groups of rollouts to be finished: what `Client.trajectories` does.

It polls: a trainer waits for seconds to minutes, and a poll is one query of an index. Nothing is kept on the server, so
a restart of it, or of the connection, costs a poll.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar, final

import msgspec

from turnstile.errors import CallerError, TurnstileError
from turnstile.journal import RolloutStatus
from turnstile.trajectory.format import Rollout

FIRST_POLL_S = 0.1
LONGEST_POLL_S = 2.0
"""Polls come at 0.1 s when there was news, and twice as far apart each time that there is none, up to this."""
OUTAGE_PATIENCE_S = 120.0
"""How long a server may be away, be it for a restart, where no time limit was set."""
_PAGE = "1000"
AnswerT = TypeVar("AnswerT")


class Server(Protocol):
    """What is asked of a server."""

    def get(self, path: str, **query: str) -> bytes:
        """The body of GET path. Raises: TurnstileError."""
        ...

    def trajectory(self, rollout_id: str) -> Rollout:
        """The latest attempt of a rollout. Raises: TurnstileError."""
        ...

    def mark_exported(self, rollout_id: str, *, to: str, attempt: int | None = None) -> None:
        """Note that an attempt was taken. Raises: TurnstileError."""
        ...


class Wanted(msgspec.Struct, frozen=True):
    """Which groups are waited for."""

    group_ids: tuple[str, ...] | None
    """None = every group that there is or will be, and rollouts without a group one by one."""
    group_size: int | None
    """Finished rollouts that make a group whole; None = whole when none of it is running."""
    timeout_s: float | None
    """Longest time between two groups; None = any."""
    exported_to: str = ""
    """Who takes them; empty = it is not noted."""


class Clock(Protocol):
    """Time that passes."""

    def now_s(self) -> float:
        """Seconds that never go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


class WallClock:
    """The machine's own."""

    def now_s(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)


class _Listed(msgspec.Struct, frozen=True):
    number: int
    rollout_id: str
    attempt: int
    status: str
    group_id: str | None = None


class _Page(msgspec.Struct, frozen=True):
    rollouts: tuple[_Listed, ...]
    next: int | None


def finished_groups(server: Server, wanted: Wanted, clock: Clock) -> Iterator[Rollout]:
    """The rollouts of each group when it is whole, one group after the other, none of them twice.

    Raises: TurnstileError `groups_unfinished` when the time limit passes, `server_unreachable` when the server stays
        away; CallerError if it refuses to be asked.
    """
    wait = _Wait(server, wanted, clock)
    while not wait.is_over:
        for group in wait.whole_groups():
            yield from group
            # Whoever asks for more has what came before.
            wait.begin_anew()
            wait.mark(group)
        if not wait.is_over:
            wait.sleep()


@final
class _Wait:
    def __init__(self, server: Server, wanted: Wanted, clock: Clock) -> None:
        self._server = server
        self._wanted = wanted
        self._clock = clock
        self._given: set[str] = set()
        """Keys of groups."""
        self._latest: dict[str, _Listed] = {}
        """By rollout, those of groups that are not given yet."""
        self._after = 0
        self._poll_s = FIRST_POLL_S
        self._news_at_s = self._seen_at_s = clock.now_s()

    @property
    def is_over(self) -> bool:
        groups = self._wanted.group_ids
        return groups is not None and all(_group_key(each) in self._given for each in groups)

    def begin_anew(self) -> None:
        """A group was handed on: time limit and polls begin again."""
        # However long the caller took over the group, the server was not asked, so it was not away either.
        self._news_at_s = self._seen_at_s = self._clock.now_s()
        self._poll_s = FIRST_POLL_S

    def mark(self, group: list[Rollout]) -> None:
        """Note that a group was taken, as soon as the server is there."""
        for rollout in group if self._wanted.exported_to else ():
            while self._asked(lambda rollout=rollout: self._marked(rollout)) is None:
                self._clock.sleep(LONGEST_POLL_S)
        self.begin_anew()

    def _marked(self, rollout: Rollout) -> bool:
        try:
            self._server.mark_exported(rollout.rollout_id, to=self._wanted.exported_to, attempt=rollout.attempt)
        except CallerError as gone:
            # Somebody deleted it meanwhile; it was taken all the same.
            if gone.code not in ("rollout_deleted", "rollout_not_found"):
                raise
        return True

    def sleep(self) -> None:
        waited_s = self._clock.now_s() - self._news_at_s
        limit_s = self._wanted.timeout_s
        if limit_s is not None and waited_s >= limit_s:
            raise TurnstileError(
                f"After {waited_s:.0f} s {self._missing()}",
                "Look at the agents with GET /rollouts, close those that hang, or wait longer with `timeout_s`",
                code="groups_unfinished",
            )
        self._clock.sleep(self._poll_s if limit_s is None else min(self._poll_s, limit_s - waited_s))
        self._poll_s = min(2 * self._poll_s, LONGEST_POLL_S)

    def _missing(self) -> str:
        running = sorted(each.rollout_id for each in self._latest.values() if each.status == RolloutStatus.RUNNING)
        if running:
            return f"no group is whole; still running: {', '.join(running[:5])}{', ...' if len(running) > 5 else ''}"
        return "no group is whole, and no rollout is running"

    def whole_groups(self) -> Iterator[list[Rollout]]:
        """Those that have become whole; none while the server is away."""
        groups = self._asked(self._poll)
        for key, members in (groups or {}).items():
            chosen = self._chosen(members)
            if not chosen:
                continue
            rollouts = self._asked(lambda chosen=chosen: self._fetched(chosen))
            if rollouts:
                self._given.add(key)
                yield rollouts

    def _chosen(self, members: list[_Listed]) -> list[_Listed]:
        finished = [each for each in members if each.status != RolloutStatus.RUNNING]
        size = self._wanted.group_size
        if size is None or members[0].group_id is None:
            return finished if len(finished) == len(members) else []
        return finished[:size] if len(finished) >= size else []

    def _fetched(self, chosen: list[_Listed]) -> list[Rollout]:
        """Their trajectories; none if one has begun another attempt since it was listed."""
        rollouts: list[Rollout] = []
        for each in chosen:
            try:
                rollout = self._server.trajectory(each.rollout_id)
            except CallerError as gone:
                # It was deleted since it was listed; the next list does not have it.
                if gone.code != "rollout_deleted":
                    raise
                del self._latest[each.rollout_id]
                return []
            if rollout.attempt != each.attempt or rollout.status == RolloutStatus.RUNNING:
                return []
            rollouts.append(rollout)
        return rollouts

    def _asked(self, ask: Callable[[], AnswerT]) -> AnswerT | None:
        """What the server answers; None while it is away. Raises: TurnstileError if it is away for too long."""
        try:
            answer = ask()
        except TurnstileError as error:
            # A refusal stays one; what is not reachable, or in trouble of its own, may come back.
            is_away = error.code == "server_unreachable" or error.status in (502, 503, 504)
            patience_s = OUTAGE_PATIENCE_S if self._wanted.timeout_s is None else self._wanted.timeout_s
            if not is_away or self._clock.now_s() - self._seen_at_s >= patience_s:
                raise
            return None
        self._seen_at_s = self._clock.now_s()
        return answer

    def _poll(self) -> dict[str, list[_Listed]]:
        """The latest attempts by group, of groups that are not given yet, in the order of opening."""
        asked = self._wanted.group_ids
        for group_id in asked if asked is not None else (None,):
            if group_id is None or _group_key(group_id) not in self._given:
                self._list(group_id)
        groups: dict[str, list[_Listed]] = {}
        for each in sorted(self._latest.values(), key=lambda listed: listed.number):
            groups.setdefault(_key_of(each), []).append(each)
        for key in self._given & groups.keys():
            del groups[key]
        self._forget(groups)
        return groups

    def _list(self, group_id: str | None) -> None:
        query = {"limit": _PAGE} | ({} if group_id is None else {"group_id": group_id})
        # Groups are listed one by one, so what is known of one says nothing of what another had when it was listed.
        after: int | None = self._after if group_id is None else 0
        while after is not None:
            page = msgspec.json.decode(self._server.get("/rollouts", **query, after=str(after)), type=_Page)
            for each in page.rollouts:
                known = self._latest.get(each.rollout_id)
                if known is None or known.attempt <= each.attempt:
                    self._latest[each.rollout_id] = each
            after = page.next

    def _forget(self, groups: dict[str, list[_Listed]]) -> None:
        """Keep only what is waited for; what was opened before all of that is not listed again."""
        self._latest = {each.rollout_id: each for members in groups.values() for each in members}
        first = min((each.number for each in self._latest.values()), default=None)
        if first is not None:
            self._after = max(self._after, first - 1)


def _group_key(group_id: str) -> str:
    return f"group {group_id}"


def _key_of(listed: _Listed) -> str:
    return f"rollout {listed.rollout_id}" if listed.group_id is None else _group_key(listed.group_id)
