"""Make the small stores of earlier versions that lie beside this script.

Run with the interpreter of a checkout of that version (its `src` on the path), never with today's: what is tested is
that today's Turnstile opens what an earlier one wrote.

    git worktree add OLD COMMIT
    PYTHONPATH=OLD/src python tests/store/stores/make.py v1

`v1` was made at the commit "Add the store: durable appends on one writer thread, paged readers, blobs by hash", the
first that had a store; `v1-images` at the commit before version 2 came, whose records name images.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from turnstile.conversation import Message, ReplyFinish, Role, Sampling, Text, Usage
from turnstile.generation import Draw, Finish, Head, LogprobsMode, Root
from turnstile.journal import (
    CallFailed,
    CallStarted,
    RolloutFinished,
    RolloutOpened,
    RolloutStatus,
    SampledChoice,
    TurnCommitted,
)
from turnstile.reasons import FailReason, RootReason
from turnstile.store import Blobs, Journal
from turnstile.tokens import IdRun, LogprobRun, Segment, SegmentKind

HERE = Path(__file__).parent
_HEAD = Head("f" * 64, "m", "t", 10, "c", "{}", ())
NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


def _started(rollout_id: str, call_id: str, parts: tuple[Any, ...]) -> CallStarted:
    ids = IdRun.of(range(3))
    return CallStarted(
        rollout_id=rollout_id,
        call_id=call_id,
        started_at=NOON,
        dialect="openai.chat",
        head=_HEAD.fingerprint,
        new_head=_HEAD,
        engine="llamacpp",
        engine_version="1",
        parent=None,
        held_length=0,
        added_A=ids,
        added_segments=(Segment(0, 3, SegmentKind.PROMPT),),
        prompt_sha256=ids.sha256(),
        history=Root(RootReason.FIRST_CALL),
        covered_M=0,
        new_M=(Message(Role.USER, parts),),
        sampling=Sampling(),
        draw=Draw(),
        body_digest="0" * 64,
    )


def _committed(rollout_id: str, call_id: str) -> TurnCommitted:
    choice = SampledChoice(
        choice=0,
        ids_S=IdRun.of([7, 8]),
        logprobs_S=LogprobRun.of([-0.5, -0.25]),
        message=Message(Role.ASSISTANT, (Text("4"),)),
        reply_finish=ReplyFinish.STOP,
        finish=Finish.STOP,
        engine_finish_reason="eos",
        usage=Usage(3, 2),
        logprobs_mode=LogprobsMode.PROCESSED,
        logprobs_temperature=1.0,
    )
    return TurnCommitted(rollout_id, call_id, NOON, (choice,))


async def _fill(directory: Path, parts: tuple[Any, ...]) -> None:
    journal = Journal.open(directory)
    for record in (
        RolloutOpened("closed", 1, NOON, group_id="g"),
        _started("closed", "c0", parts),
        _committed("closed", "c0"),
        RolloutFinished("closed", NOON, RolloutStatus.COMPLETED, reward=1.0),
        RolloutOpened("open", 1, NOON),
        _started("open", "c0", (Text("2+2?"),)),
        CallFailed("open", "c0", NOON, FailReason.ENGINE_UNREACHABLE, "The engine is down."),
    ):
        await journal.append(record)
    journal.close()


def main(name: str) -> None:
    directory = HERE / name
    shutil.rmtree(directory, ignore_errors=True)
    parts: tuple[Any, ...] = (Text("2+2?"),)
    if name == "v1-images":
        from turnstile.conversation import Image

        parts = (Text("What is it?"), Image(Blobs(directory).put(b"an image"), "image/png"))
    asyncio.run(_fill(directory, parts))
    (directory / "lock").unlink()


if __name__ == "__main__":
    main(sys.argv[1])
