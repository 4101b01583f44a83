"""What a client that re-sends text would have done to the tokens: where, how much, and of what kind.

The prompt of each answered call and each finished sequence is rendered and tokenized again from its messages, as an
engine's chat route and a trainer that starts from text would do, and compared with the ids that are held. The first
index at which the two differ decides: every sampled id from there on would have stood at another place, under another
prefix, or not at all. Nothing here changes what is stored.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from typing import assert_never, final

import msgspec

from turnstile.errors import CallerError
from turnstile.reports.drift_cause import DriftKind, Held, cause
from turnstile.reports.reencode import Reencoder
from turnstile.reports.text_client import Conversation, prompt_text, sequence_text
from turnstile.templates.served import Served
from turnstile.tokens import IdRun, first_difference

__all__ = [
    "CallDrift",
    "Comparer",
    "Difference",
    "Drift",
    "DriftKind",
    "Figures",
    "NotCompared",
    "Run",
    "RunKind",
    "call_drift",
    "of_run",
    "total",
]

_BEFORE = 2
"""Ids shown before a difference, so that its place is recognised."""
_BEHIND = 10
"""Ids shown from a difference on."""


class Difference(msgspec.Struct, frozen=True):
    """Where one held run and its re-rendering part."""

    where: str
    """`prompt of CALL` or `sequence of CALL`."""
    kind: DriftKind
    index: int
    """First token index that differs."""
    wrong: int
    """Sampled ids at or behind it."""
    held: str
    """The held text from two ids before it on."""
    rendered: str
    """The re-rendered text from there on; for RENDER_FAILED the template's words."""
    held_ids: tuple[int, ...] = ()
    """The held ids from `index` on, up to where both sides have spelled one text; the first few if they never do."""
    rendered_ids: tuple[int, ...] = ()
    """The re-rendered ids of the same stretch."""


class CallDrift(msgspec.Struct, frozen=True):
    """One answered call: its prompt, and the one that a client of text would have sent."""

    call_id: str
    history: str
    """How the prompt came about, as `x-turnstile-history` says it."""
    tokens: int
    """Ids of the prompt."""
    sampled: int
    """Of those, sampled in earlier calls and trained on in this sequence."""
    wrong: int
    """Of those, at or behind the first difference."""
    kind: DriftKind | None
    """None: the two prompts are equal."""
    index: int | None
    """First token that differs; None: none does."""


class PromptFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Drift of prompts in numbers, of a rollout, a group or a store. Exact for what was compared."""

    calls: int = 0
    """Answered calls."""
    calls_compared: int = 0
    calls_differing: int = 0
    """Calls whose prompt would have been other ids."""
    prompt_sampled: int = 0
    """Sampled ids in the compared prompts; one counts once for each prompt that it stands in."""
    prompt_wrong: int = 0
    """Of those, at or behind the first difference."""
    prompt_wrong_by_kind: dict[str, int] = {}
    calls_by_kind: dict[str, int] = {}
    """Calls that differ, by kind."""


class Figures(PromptFigures, frozen=True, kw_only=True):
    """The same, and the drift of finished sequences."""

    sequences: int = 0
    sequences_compared: int = 0
    sequences_differing: int = 0
    sampled: int = 0
    """Sampled ids in the compared sequences; one that stands in two sequences counts twice."""
    wrong: int = 0
    """Of those, how many a trainer that starts from text would have had wrong."""
    wrong_by_kind: dict[str, int] = {}


class Drift(Figures, frozen=True, kw_only=True):
    """The drift report of one attempt of a rollout."""

    rollout_id: str
    attempt: int = 1
    group_id: str | None = None
    problem: str = ""
    """Why some of it, or all, was not compared; empty if all was."""
    by_call: tuple[CallDrift, ...] = ()
    """One entry a compared call; none where only sequences are known."""
    differences: tuple[Difference, ...] = ()
    """Of prompts, then of sequences."""


class NotCompared(msgspec.Struct, frozen=True):
    """That a run could not be rendered and tokenized again."""

    why: str


class RunKind(enum.Enum):
    """What a run of held ids is."""

    PROMPT = "prompt"
    """What the engine was asked to go on from."""
    SEQUENCE = "sequence"
    """A path to its end, an answer."""


class Run(msgspec.Struct, frozen=True):
    """A held run, and what a client of text would have sent for it."""

    kind: RunKind
    call_id: str
    said: Conversation
    held: Held
    trained: int
    """How many of the held answers a trainer trains on here, the first ones; those behind are context."""
    history: str = ""

    @property
    def where(self) -> str:
        """For people."""
        return f"{self.kind.value} of {self.call_id}"

    @property
    def sampled(self) -> int:
        """Ids in it that were sampled under this very prefix."""
        return self.sampled_from(0)

    def sampled_from(self, at: int) -> int:
        """Those of them that stand at token `at` or behind it."""
        return sum(max(0, end - max(start, at)) for start, end in self.held.sampled[: self.trained])


@final
class Comparer:
    """Renders and tokenizes runs again; one for all runs of a report, so that what they share is encoded once."""

    def __init__(self) -> None:
        self._reencoders: dict[Served, Reencoder] = {}

    def difference(self, served: Served, run: Run) -> Difference | None:
        """The first place where a run and its re-rendering part; None if the re-rendering begins with the whole run.

        What a re-rendering has behind a sequence's last id is not compared: the template closes what is still open.
        """
        ids_T = run.held.ids_T
        try:
            rendered_T = self._reencoder(served).encode(_text(served, run))
        except CallerError as failed:
            return Difference(run.where, DriftKind.RENDER_FAILED, 0, run.sampled, "", failed.problem[:200])
        at = first_difference(ids_T, rendered_T)
        if at is None or (run.kind is RunKind.SEQUENCE and at == len(ids_T)):
            return None
        held_ids, rendered_ids = _parted(served, ids_T, rendered_T, at)
        return Difference(
            where=run.where,
            kind=cause(served, run.held, rendered_T, at),
            index=at,
            wrong=run.sampled_from(at),
            held=_window(served, ids_T, at),
            rendered=_window(served, rendered_T, at),
            held_ids=held_ids,
            rendered_ids=rendered_ids,
        )

    def _reencoder(self, served: Served) -> Reencoder:
        return self._reencoders.setdefault(served, Reencoder(served))


def _text(served: Served, run: Run) -> str:
    match run.kind:
        case RunKind.PROMPT:
            return prompt_text(served, run.said)
        case RunKind.SEQUENCE:
            return sequence_text(served, run.said)
        case _:
            assert_never(run.kind)


def _window(served: Served, ids_T: IdRun, at: int) -> str:
    return served.tokenizer.decode(ids_T.slice(max(0, at - _BEFORE), min(len(ids_T), at + _BEHIND)))


def _parted(served: Served, held_T: IdRun, rendered_T: IdRun, at: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids of each side from a difference on, up to where both have spelled the same bytes."""
    held, rendered = (tuple(run.slice(at, min(len(run), at + _BEHIND)).tolist()) for run in (held_T, rendered_T))
    rendered_ends = {_spelled(served, rendered[:count]): count for count in range(1, len(rendered) + 1)}
    for count in range(1, len(held) + 1):
        if (other := rendered_ends.get(_spelled(served, held[:count]))) is not None:
            return held[:count], rendered[:other]
    return held, rendered


def _spelled(served: Served, ids: tuple[int, ...]) -> bytes:
    return b"".join(served.tokenizer.token_bytes(each) for each in ids)


def of_run(run: Run, found: Difference | NotCompared | None) -> Figures:
    """The figures of one run."""
    if isinstance(found, NotCompared):
        return Figures(calls=1) if run.kind is RunKind.PROMPT else Figures(sequences=1)
    wrong = found.wrong if found else 0
    by_kind = {found.kind.value: found.wrong} if found else {}
    differing = int(found is not None)
    match run.kind:
        case RunKind.PROMPT:
            return Figures(
                calls=1,
                calls_compared=1,
                calls_differing=differing,
                calls_by_kind={found.kind.value: 1} if found else {},
                prompt_sampled=run.sampled,
                prompt_wrong=wrong,
                prompt_wrong_by_kind=by_kind,
            )
        case RunKind.SEQUENCE:
            return Figures(
                sequences=1,
                sequences_compared=1,
                sequences_differing=differing,
                sampled=run.sampled,
                wrong=wrong,
                wrong_by_kind=by_kind,
            )
        case _:
            assert_never(run.kind)


_SUMMED = (
    "calls", "calls_compared", "calls_differing", "prompt_sampled", "prompt_wrong",
    "sequences", "sequences_compared", "sequences_differing", "sampled", "wrong",
)  # fmt: skip
_BY_KIND = ("calls_by_kind", "prompt_wrong_by_kind", "wrong_by_kind")


def total(figures: Iterable[Figures]) -> Figures:
    """All figures together."""
    each = list(figures)
    numbers = {name: sum(getattr(one, name) for one in each) for name in _SUMMED}
    kinds = {name: _added(getattr(one, name) for one in each) for name in _BY_KIND}
    return msgspec.convert({**numbers, **kinds}, Figures)


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    added: Counter[str] = Counter()
    for count in counts:
        added.update(count)
    return dict(added)


def by_group(reports: Iterable[Drift]) -> dict[str | None, list[Drift]]:
    """Reports by the group of their rollouts, in order of first appearance."""
    groups: dict[str | None, list[Drift]] = {}
    for each in reports:
        groups.setdefault(each.group_id, []).append(each)
    return groups


def call_drift(run: Run, found: Difference | None) -> CallDrift:
    """What is said of one compared prompt."""
    return CallDrift(
        call_id=run.call_id,
        history=run.history,
        tokens=len(run.held.ids_T),
        sampled=run.sampled,
        wrong=found.wrong if found else 0,
        kind=found.kind if found else None,
        index=found.index if found else None,
    )
