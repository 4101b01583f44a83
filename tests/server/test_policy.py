"""What the trainer says of the weights, and what a restart knows of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from turnstile.errors import CallerError, StoreError
from turnstile.exchange.holding import Gate
from turnstile.exchange.policy_log import Announcement, EnginePolicy, PolicyLog, PolicyPage, PolicyState, Standing
from turnstile.server.policy import KeptPolicy, Policy, kept_policy
from turnstile.store import Journal, Reader

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def made(journal: Journal, folder: Path) -> tuple[Policy, PolicyLog, Gate]:
    gate = Gate(lambda: NOW)
    with Reader.open(folder) as reader:
        policy = Policy.restored(journal, reader, ("a", "b"), gate)
    return policy, policy.log, gate


def left(folder: Path) -> KeptPolicy:
    with Reader.open(folder) as reader:
        return kept_policy(reader.meta("policy"))


async def test_announcements_and_holds_are_in_the_store_and_a_restart_goes_on_with_them(
    journal: Journal, tmp_path: Path
) -> None:
    policy, _, _ = made(journal, tmp_path)
    await policy.announce(Announcement(7, "v7"))
    await policy.announce(Announcement(8, engine="b"))
    page = await policy.hold("a", 30)
    until = NOW + timedelta(seconds=30)
    assert page == PolicyPage(
        (EnginePolicy("a", 7, "v7", until, 0, 0), EnginePolicy("b", 8, "", None, 0, 0)), {"v7": 7}
    )
    assert left(tmp_path) == KeptPolicy(
        PolicyState({"a": Standing(7, "v7"), "b": Standing(8)}, {"v7": 7}), {"a": until}
    )
    again, _, _ = made(journal, tmp_path)
    assert again.page() == page


async def test_an_announcement_releases_the_calls_of_the_engines_that_it_speaks_of(
    journal: Journal, tmp_path: Path
) -> None:
    policy, _, gate = made(journal, tmp_path)
    await policy.hold("", 30)
    await policy.announce(Announcement(1, engine="a"))
    assert (set(gate.holds), set(left(tmp_path).holds)) == ({"b"}, {"b"})


async def test_a_release_leaves_the_version_as_it_was(journal: Journal, tmp_path: Path) -> None:
    policy, log, gate = made(journal, tmp_path)
    await policy.announce(Announcement(1))
    await policy.hold("", 30)
    await policy.release("")
    assert (log.version("a"), dict(gate.holds), left(tmp_path).holds) == (1, {}, {})


async def test_the_version_of_an_engine_that_came_back_is_unknown_also_after_a_restart(
    journal: Journal, tmp_path: Path
) -> None:
    policy, log, _ = made(journal, tmp_path)
    await policy.announce(Announcement(1))
    await policy.forget("a")
    assert (log.version("a"), log.version("b")) == (None, 1)
    assert left(tmp_path).state.engines == {"a": Standing(), "b": Standing(1)}


async def test_what_is_refused_or_cannot_be_written_changes_nothing(journal: Journal, tmp_path: Path) -> None:
    policy, log, gate = made(journal, tmp_path)
    await policy.announce(Announcement(1))
    for refused in (Announcement(2, "3"), Announcement(2, engine="c")):
        with pytest.raises(CallerError):
            await policy.announce(refused)
    journal.close()
    with pytest.raises(StoreError):
        await policy.announce(Announcement(2))
    with pytest.raises(StoreError):
        await policy.hold("", 30)
    assert (log.version("a"), dict(gate.holds)) == (1, {})


def test_a_store_that_says_nothing_begins_without_a_version_and_one_that_is_damaged_says_so() -> None:
    assert kept_policy(None) == KeptPolicy()
    with pytest.raises(StoreError):
        kept_policy('{"state": 3}')
