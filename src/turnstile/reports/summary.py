"""A rollout in a few figures."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import msgspec

from turnstile.conversation import CallKind
from turnstile.generation import Forked, Rerendered, history_header
from turnstile.history.forest import Forest
from turnstile.journal import CallStarted, RolloutStatus
from turnstile.reasons import EndReason, NoteCode
from turnstile.reports.drift import PromptFigures
from turnstile.tokens import SegmentKind


class Summary(msgspec.Struct, frozen=True):
    """What GET /rollouts/ID answers."""

    rollout_id: str
    attempt: int
    status: RolloutStatus
    group_id: str | None
    task_id: str | None
    opened_at: datetime
    finished_at: datetime | None
    reward: float | None
    calls: int
    failed_calls: dict[str, int]
    """By reason."""
    prompt_tokens: int
    sampled_tokens: int
    replayed_tokens: int
    """Ids of earlier answers that were put back behind another prefix."""
    reencoded_tokens: int
    """Other ids that forks and rerenders added: text that was tokenized once more, and what was new."""
    history: dict[str, int]
    """How prompts came about: `root`, `spliced`, `forked:REASON`, `rerendered:REASON`."""
    notes: dict[str, int]
    """What was noticed, forgiven or repaired, by code."""
    quirks: dict[str, int]
    """Calls by the habits of harnesses that they showed."""
    kinds: dict[str, int]
    """Calls by whose they are: `turn`, and `auxiliary:PURPOSE` for a harness's own."""
    engines: dict[str, int]
    """Calls by the engine that they went to, as host and port."""
    retries: int
    drift: PromptFigures
    """What the prompts of a client of text would have been, as far as they were compared by now."""
    end_reason: EndReason | None = None
    """Who or what closed it; None while it is open."""


def summarise(forest: Forest, drift: PromptFigures) -> Summary:
    """Count a rollout's calls, tokens, forks and notes.

    Args:
        forest: the rollout.
        drift: of the calls that were compared while the server ran.

    Raises: ValueError if the forest has no rollout.
    """
    opened, finished = forest.opened, forest.finished
    if opened is None:
        raise ValueError("the forest has no rollout")
    states = tuple(forest.calls.values())
    notes: Counter[str] = Counter()
    for state in states:
        notes.update(note.code for note in state.started.notes)
        if state.committed:
            notes.update(note.code for choice in state.committed.choices for note in choice.notes)
    choices = [choice for state in states if state.committed for choice in state.committed.choices]
    started = [state.started for state in states]
    forks = [each for each in started if isinstance(each.history, Forked | Rerendered)]
    failures = [*forest.refused, *(state.failed for state in states if state.failed)]
    return Summary(
        rollout_id=opened.rollout_id,
        attempt=opened.attempt,
        status=finished.status if finished else RolloutStatus.RUNNING,
        group_id=opened.group_id,
        task_id=opened.task_id,
        opened_at=opened.opened_at,
        finished_at=finished.finished_at if finished else None,
        end_reason=finished.reason if finished else None,
        reward=finished.reward if finished else None,
        calls=len(states),
        failed_calls=dict(Counter(failed.reason.value for failed in failures)),
        prompt_tokens=sum(choice.usage.prompt_tokens for choice in choices),
        sampled_tokens=sum(len(choice.ids_S) for choice in choices),
        replayed_tokens=sum(map(_replayed, started)),
        reencoded_tokens=sum(len(each.added_A) - _replayed(each) for each in forks),
        history=dict(Counter(history_header(state.started.history) for state in states)),
        notes=dict(notes),
        quirks=dict(Counter(note.detail for each in started for note in each.notes if note.code is NoteCode.QUIRK)),
        kinds=dict(Counter(map(_kind, started))),
        engines=dict(Counter(each.engine_name for each in started if each.engine_name)),
        retries=sum(len(state.joined) for state in states),
        drift=_of_all(drift, sum(state.committed is not None for state in states)),
    )


def _kind(started: CallStarted) -> str:
    return f"{started.kind}:{started.purpose}" if started.kind is CallKind.AUXILIARY else started.kind.value


def _replayed(started: CallStarted) -> int:
    return sum(part.end - part.start for part in started.added_segments if part.kind is SegmentKind.REPLAYED)


def _of_all(drift: PromptFigures, answered: int) -> PromptFigures:
    """The figures of prompts alone, among all answered calls: also those from before a restart."""
    named = {name: getattr(drift, name) for name in PromptFigures.__struct_fields__}
    return msgspec.convert({**named, "calls": answered}, PromptFigures)
