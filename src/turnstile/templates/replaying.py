"""Whether the ids of earlier answers go back into a rewritten history, and what is said of those that do not.

Source: docs/decisions/0010.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from turnstile.conversation import Call
from turnstile.generation import Match, Note, Replay, Retention, listed
from turnstile.reasons import NoteCode
from turnstile.templates.checks_multi import puts_back
from turnstile.templates.multisplice import MultiSplice, multi_splice
from turnstile.templates.served import Served


def put_back(served: Served, match: Match, call: Call, now: datetime, retention: Retention) -> MultiSplice | None:
    """The ids of `match.replays` among the texts of `match.new_M`; None where they are to be rendered as text.

    Only where the certificate's check of this is exact, and where what was sampled is to stay as it was sampled: the
    other policies want what the template writes.

    Args:
        served: the model, with the template for the call's tools.
        match: what is held, what is new, and which of that are answers whose ids are held.
        call: for its tools, template arguments and ending.
        now: what the template sees as the present.
        retention: what stays of the past where the template would write it in another way.

    Raises: CallerError if tools or template arguments are no JSON objects, or a text has no bytes.
    """
    if not match.replays or retention is not Retention.RETAIN or served.proofs.refusal or not puts_back(served, call):
        return None
    built = multi_splice(served, match, call, now)
    return built if isinstance(built, MultiSplice) else None


def notes_on(replays: Iterable[Replay], replayed: Iterable[Replay]) -> tuple[Note, ...]:
    """Which answers stand in a prompt with their own ids, and which as text.

    Args:
        replays: the answers whose ids are held.
        replayed: those that were put back.
    """
    found: dict[NoteCode, list[int]] = {}
    own = {replay.index for replay in replayed}
    for replay in replays:
        code = NoteCode.REPLAYED_HISTORY if replay.index in own else NoteCode.RERENDERED_HISTORY
        found.setdefault(code, []).append(replay.message_index)
    return listed(found)
