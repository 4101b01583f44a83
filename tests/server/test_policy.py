"""The weight version that the trainer announces."""

from __future__ import annotations

from turnstile.server.policy import Policy


def test_the_version_is_unknown_until_one_is_announced_and_then_the_latest() -> None:
    policy = Policy()
    before = policy.version()
    policy.announce(3)
    policy.announce(4)
    assert (before, policy.version()) == (None, 4)
