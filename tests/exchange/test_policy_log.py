"""What was announced of the policy, and when it holds."""

from __future__ import annotations

import gc
import weakref

import pytest

from turnstile.errors import CallerError
from turnstile.exchange.policy_log import Announcement, Epoch, PolicyLog, PolicyState, Standing, decimal_version


def announce(log: PolicyLog, *announcements: Announcement) -> None:
    for each in announcements:
        log.take(log.after(each))


@pytest.mark.parametrize(
    ("label", "version"),
    [
        ("0", 0), ("7", 7), (str(2**63 - 1), 2**63 - 1), (str(2**63), None), ("07", None), ("-1", None), ("+1", None),
        ("1.0", None), ("v7", None), ("", None), ("default", None), (" 7", None), ("\u0667", None),
    ],
)  # fmt: skip
def test_a_label_is_a_version_by_itself_only_as_a_decimal_int64(label: str, version: int | None) -> None:
    assert decimal_version(label) == version


def test_nothing_is_known_before_the_first_announcement_then_the_last_one_holds_also_if_it_is_lower() -> None:
    log = PolicyLog()
    assert (log.version(), log.epoch().announced()) == (None, (None, None))
    announce(log, Announcement(5), Announcement(3))
    assert (log.version(), log.epoch().announced()) == (3, (3, 3))


def test_an_epoch_spans_every_version_that_was_in_force_since_it_began() -> None:
    log = PolicyLog()
    unknown = log.epoch()
    announce(log, Announcement(5))
    five = log.epoch()
    announce(log, Announcement(9), Announcement(3), Announcement(6))
    assert (unknown.announced(), five.announced(), log.epoch().announced()) == ((None, None), (3, 9), (6, 6))


def test_an_announcement_of_one_engine_leaves_the_others_as_they_were() -> None:
    log = PolicyLog(("a", "b"))
    announce(log, Announcement(1), Announcement(2, engine="b"))
    assert (log.version("a"), log.version("b")) == (1, 2)


def test_an_engine_that_may_have_lost_its_weights_has_an_unknown_version_until_the_next_announcement() -> None:
    log = PolicyLog(("a", "b"))
    announce(log, Announcement(1))
    began = log.epoch("a")
    log.take(log.without("a"))
    assert (log.version("a"), log.version("b"), began.announced()) == (None, 1, (None, None))
    announce(log, Announcement(2))
    assert log.epoch("a").announced() == (2, 2)


def test_a_label_that_is_a_number_cannot_be_announced_as_another_version() -> None:
    log = PolicyLog()
    announce(log, Announcement(7, "7"))
    with pytest.raises(CallerError) as refused:
        log.after(Announcement(8, "7"))
    assert (refused.value.code, refused.value.param, log.version()) == ("policy_label_contradicts", "label", 7)


@pytest.mark.parametrize("names", [("a", "b"), ("",)])
def test_an_engine_that_is_not_there_cannot_be_announced(names: tuple[str, ...]) -> None:
    with pytest.raises(CallerError) as refused:
        PolicyLog(names).after(Announcement(8, engine="c"))
    assert (refused.value.code, refused.value.param) == ("engine_unknown", "engine")


def test_what_a_restart_is_told_is_in_force_again_for_the_engines_that_are_still_there() -> None:
    log = PolicyLog(("a", "b"))
    announce(log, Announcement(1, "first"), Announcement(2, engine="b"))
    again = PolicyLog(("b", "c"), log.state())
    assert again.state() == PolicyState({"b": Standing(2), "c": Standing()}, {"first": 1})


def test_labels_are_remembered_up_to_a_bound_and_the_latest_use_counts() -> None:
    log = PolicyLog()
    announce(log, Announcement(0, "base"), *(Announcement(at, f"step{at}") for at in range(1023)))
    announce(log, Announcement(0, "base"), Announcement(1023, "step1023"))
    labels = log.state().labels
    assert (len(labels), "base" in labels, "step0" in labels, "step1" in labels) == (1024, True, False, True)


def test_epochs_that_nobody_holds_are_gone() -> None:
    log = PolicyLog()

    class Held(Epoch):
        __slots__ = ("__weakref__",)

    held = Held(Standing(1), {})
    gone = weakref.ref(held)
    held.follow(log.epoch())
    del held
    gc.collect()
    assert gone() is None
