"""Which parts of a head changed."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from turnstile.conversation import Message, Role, Sampling, Text
from turnstile.generation import Draw, Head, Root
from turnstile.history.forest import Forest
from turnstile.history.head_parts import changed_parts
from turnstile.journal import CallStarted, RolloutOpened
from turnstile.reasons import RootReason
from turnstile.tokens import IdRun

NOON = datetime(2026, 12, 1, tzinfo=UTC)
HEAD = Head("h0", "m", "0" * 64, 128, "1" * 64, "{}", ("a",))
USER = Message(Role.USER, (Text("Hi"),))


def system(*texts: str) -> Message:
    return Message(Role.SYSTEM, tuple(map(Text, texts)))


def forest(*roots: tuple[Head, tuple[Message, ...]]) -> Forest:
    found = Forest()
    found.apply(RolloutOpened("ro", 1, NOON))
    for at, (head, messages) in enumerate(roots):
        found.apply(
            CallStarted(
                rollout_id="ro",
                call_id=f"c{at}",
                started_at=NOON,
                dialect="openai.chat",
                head=head.fingerprint,
                new_head=head,
                engine="e",
                engine_version="1",
                parent=None,
                held_length=0,
                added_A=IdRun.of([1]),
                added_segments=(),
                prompt_sha256="",
                history=Root(RootReason.FIRST_CALL),
                covered_M=0,
                new_M=messages,
                sampling=Sampling(),
                draw=Draw(),
                body_digest=f"{at}",
            )
        )
    return found


def changed(head: Head, **fields: object) -> Head:
    return msgspec.structs.replace(head, fingerprint=f"{fields}", **fields)


def test_a_block_of_the_system_text_is_named_by_its_place() -> None:
    held = forest((HEAD, (system("line a", "You help."), USER)))
    assert changed_parts(held, HEAD, (system("line b", "You help."), USER)) == ("system[0]",)
    assert changed_parts(held, HEAD, (system("line a"), system("You do not."), USER)) == ("system[1]",)
    assert changed_parts(held, HEAD, (USER,)) == ("system[0]", "system[1]")


def test_what_else_changed_is_named_too_and_what_stands_behind_a_user_is_no_head() -> None:
    held = forest((HEAD, (USER, system("late"))))
    assert changed_parts(held, changed(HEAD, tools=("a", "b"), model="n"), (USER,)) == ("model", "tools")


def test_the_most_similar_head_is_what_it_is_compared_with() -> None:
    title = changed(HEAD, tools=())
    held = forest((HEAD, (system("a", "b"), USER)), (title, (system("t"), USER)))
    assert changed_parts(held, HEAD, (system("x", "b"), USER)) == ("system[0]",)


def test_a_first_head_has_nothing_to_differ_from() -> None:
    assert changed_parts(Forest(), HEAD, (USER,)) == ()
