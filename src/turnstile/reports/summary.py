"""A rollout in a few figures."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import msgspec

from turnstile.generation import history_header
from turnstile.history.forest import Forest
from turnstile.journal import RolloutStatus


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
    history: dict[str, int]
    """How prompts came about: `root`, `spliced`, `forked:REASON`, `rerendered:REASON`."""
    notes: dict[str, int]
    """What was noticed, forgiven or repaired, by code."""
    retries: int


def summarise(forest: Forest) -> Summary:
    """Count a rollout's calls, tokens, forks and notes.

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
    failures = [*forest.refused, *(state.failed for state in states if state.failed)]
    return Summary(
        rollout_id=opened.rollout_id,
        attempt=opened.attempt,
        status=finished.status if finished else RolloutStatus.RUNNING,
        group_id=opened.group_id,
        task_id=opened.task_id,
        opened_at=opened.opened_at,
        finished_at=finished.finished_at if finished else None,
        reward=finished.reward if finished else None,
        calls=len(states),
        failed_calls=dict(Counter(failed.reason.value for failed in failures)),
        prompt_tokens=sum(choice.usage.prompt_tokens for choice in choices),
        sampled_tokens=sum(len(choice.ids_S) for choice in choices),
        history=dict(Counter(history_header(state.started.history) for state in states)),
        notes=dict(notes),
        retries=sum(len(state.joined) for state in states),
    )
