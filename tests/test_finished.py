"""Waiting for groups at a real server; a clock of the test's own decides what happens while it waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstile.client import Client
from turnstile.config import Settings
from turnstile.engines.smollm import say_nothing
from turnstile.errors import CallerError, TurnstileError
from turnstile.finished import LONGEST_POLL_S, Wanted, finished_groups
from turnstile.server.local import serving
from turnstile.trajectory.format import Rollout


class Meanwhile:
    """A clock that passes only when it is slept on; each sleep lets the next thing happen."""

    def __init__(self, *happens: Callable[[], object]) -> None:
        self.happens = list(happens)
        self.slept: list[float] = []

    def now_s(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.happens:
            self.happens.pop(0)()


@pytest.fixture
def client(wire_up: Callable[..., Any], tools_folder: Path) -> Iterator[Client]:
    with wire_up(tools_folder, ["<|im_end|>"]) as room:
        yield room.client


def _finish(client: Client, rollout_id: str, **opening: Any) -> None:
    client.rollout(rollout_id, **opening).finish(reward=1.0)


def _given(client: Client, clock: Meanwhile, group_ids: tuple[str, ...] | None = ("g",), **wanted: Any) -> list[str]:
    chosen = Wanted(group_ids, wanted.get("group_size"), wanted.get("timeout_s", 60.0))
    return [rollout.rollout_id for rollout in finished_groups(client, chosen, clock)]


def test_a_group_comes_whole_when_its_last_rollout_is_finished(client: Client) -> None:
    second = client.rollout("a2", group_id="g")
    _finish(client, "a1", group_id="g")
    clock = Meanwhile(lambda: None, second.finish)
    assert _given(client, clock, group_size=2) == ["a2", "a1"]
    assert clock.slept == [0.1, 0.2]


def test_without_a_size_a_group_is_whole_when_none_of_it_runs(client: Client) -> None:
    open_one = client.rollout("a1", group_id="g")
    _finish(client, "a2", group_id="g")
    assert _given(client, Meanwhile(open_one.finish)) == ["a1", "a2"]


def test_no_more_than_the_size_are_given(client: Client) -> None:
    for name in ("a1", "a2", "a3"):
        _finish(client, name, group_id="g")
    assert _given(client, Meanwhile(), group_size=2) == ["a1", "a2"]


def test_groups_come_in_the_order_in_which_they_become_whole(client: Client) -> None:
    slow = client.rollout("slow", group_id="g")
    _finish(client, "quick", group_id="h")
    assert _given(client, Meanwhile(slow.finish), ("g", "h"), group_size=1) == ["quick", "slow"]


def test_only_the_latest_attempt_counts(client: Client) -> None:
    _finish(client, "a", group_id="g")
    again = client.rollout("a", group_id="g")
    clock = Meanwhile(lambda: again.finish(reward=2.0))
    (given,) = finished_groups(client, Wanted(("g",), 1, 60.0), clock)
    assert (given.attempt, given.reward, len(clock.slept)) == (2, 2.0, 1)


def test_every_group_there_is_comes_once_and_a_rollout_without_a_group_by_itself(client: Client) -> None:
    _finish(client, "lone")
    _finish(client, "a", group_id="g")
    clock = Meanwhile(lambda: _finish(client, "late", group_id="later"))
    stream = finished_groups(client, Wanted(None, 1, 60.0), clock)
    assert [next(stream).rollout_id for _ in range(3)] == ["lone", "a", "late"]
    with pytest.raises(TurnstileError) as waited:
        next(stream)
    assert waited.value.code == "groups_unfinished"


def test_polls_become_rarer_while_there_is_no_news(client: Client) -> None:
    client.rollout("a", group_id="g")
    clock = Meanwhile()
    with pytest.raises(TurnstileError, match="still running: a") as waited:
        _given(client, clock, timeout_s=20.0)
    assert waited.value.code == "groups_unfinished"
    assert clock.slept[:6] == [0.1, 0.2, 0.4, 0.8, 1.6, LONGEST_POLL_S]
    assert sum(clock.slept) == pytest.approx(20.0)


def test_an_outage_of_the_server_is_waited_out_and_nothing_is_given_twice(
    wire_up: Callable[..., Any], tools_folder: Path, tmp_path: Path
) -> None:
    with wire_up(tools_folder, ["<|im_end|>"], store=tmp_path / "first") as other:
        # The engine stays; the server on the store is started, ended, and started again at its address.
        settings = Settings(engine=f"http://127.0.0.1:{other.fake.port}", tokenizer=tools_folder, store=tmp_path / "s")
        gone, back, done = threading.Event(), threading.Event(), threading.Event()

        def serve() -> None:
            with serving(msgspec.structs.replace(settings, port=0), say_nothing) as first:
                found.append(first.url)
                _finish(first, "a1", group_id="g")
                first.rollout("a2", group_id="g")
                _finish(first, "b1", group_id="h")
                back.set()
                gone.wait(60)
            back.set()
            done.wait(60)

        found: list[str] = []
        thread = threading.Thread(target=serve)
        thread.start()
        back.wait(60)
        back.clear()
        client = Client(found[0])

        def end() -> None:
            gone.set()
            back.wait(60)

        def start_again() -> None:
            port = int(found[0].rsplit(":", 1)[1])
            again.append(serving(msgspec.structs.replace(settings, port=port), say_nothing))
            again[0].__enter__().post("/rollouts/a2/finish", {"status": "completed"})

        again: list[Any] = []
        clock = Meanwhile(end, lambda: None, start_again)
        assert _given(client, clock, ("g", "h")) == ["b1", "a1", "a2"]
        assert len(clock.slept) == 3
        again[0].__exit__(None, None, None)
        done.set()
        thread.join(60)


def test_a_server_that_stays_away_is_told_after_the_time_limit() -> None:
    client = Client("http://127.0.0.1:9")
    with pytest.raises(TurnstileError) as away:
        _given(client, Meanwhile(), timeout_s=5.0)
    assert away.value.code in ("server_unreachable", "groups_unfinished")


def test_a_refusal_is_raised_at_once(wire_up: Callable[..., Any], tools_folder: Path) -> None:
    with wire_up(tools_folder, ["<|im_end|>"], admin_key="secret") as room, pytest.raises(CallerError):
        _given(Client(room.client.url, admin_key="wrong"), Meanwhile())


class _Opening:
    """A server at which rollouts are opened just when one group has been listed and the next has not."""

    def __init__(self, client: Client, opens: Callable[[], object]) -> None:
        self.client = client
        self.opens = [opens]

    def get(self, path: str, **query: str) -> bytes:
        answer = self.client.get(path, **query)
        if self.opens:
            self.opens.pop()()
        return answer

    def trajectory(self, rollout_id: str) -> Rollout:
        return self.client.trajectory(rollout_id)


def test_a_rollout_that_is_opened_between_the_lists_of_two_groups_is_found(client: Client) -> None:
    def opens() -> None:
        _finish(client, "a", group_id="g")
        _finish(client, "b", group_id="h")

    found = finished_groups(_Opening(client, opens), Wanted(("g", "h"), 1, 20.0), Meanwhile())
    assert [rollout.rollout_id for rollout in found] == ["b", "a"]


class _Restarting:
    """A server that is away at chosen requests, counted from 1."""

    def __init__(self, client: Client, away: set[int]) -> None:
        self.client = client
        self.away = away
        self.asked = 0

    def get(self, path: str, **query: str) -> bytes:
        self.asked += 1
        if self.asked in self.away:
            raise TurnstileError("No answer", "", code="server_unreachable")
        return self.client.get(path, **query)

    def trajectory(self, rollout_id: str) -> Rollout:
        return self.client.trajectory(rollout_id)


def test_a_restart_after_a_long_step_of_the_trainer_is_waited_out(client: Client) -> None:
    _finish(client, "a", group_id="g")
    clock = Meanwhile(lambda: _finish(client, "b", group_id="h"))
    found = finished_groups(_Restarting(client, {3}), Wanted(("g", "h"), 1, None), clock)
    assert next(found).rollout_id == "a"
    clock.slept.append(600.0)
    assert next(found).rollout_id == "b"
