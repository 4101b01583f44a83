"""From what an engine says of its weights, and what was announced, to a policy version for each sampled id.

Nothing is guessed (docs/decisions/0028). The engine's own spans come first, then what it answered when it was asked
before and after, then what was announced. Whatever that leaves open is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from turnstile.engines.base import Engine, PolicyTeller
from turnstile.errors import EngineError
from turnstile.exchange.policy_log import Epoch, decimal_version
from turnstile.generation import Generation, Note
from turnstile.journal import PolicyRange
from turnstile.reasons import NoteCode
from turnstile.tokens import PolicySpan

_Versions: TypeAlias = tuple[int | None, int | None]
"""Lowest and highest; both None: unknown."""

_BETWEEN = ".."
"""Stands between two labels where an engine was asked twice and named two."""


class Told(msgspec.Struct, frozen=True):
    """What an engine answered when it was asked for its weights; empty = it cannot be asked, or did not say."""

    before: str = ""
    after: str = ""


class Ranges(msgspec.Struct, frozen=True):
    """Which versions sampled which ids."""

    tiles: tuple[PolicyRange, ...]
    """They tile the ids; none for a completion without ids."""
    notes: tuple[Note, ...] = ()


async def label_now(engine: Engine) -> str:
    """What an engine calls the weights that it has; empty if it cannot be asked, or does not answer."""
    if not isinstance(engine, PolicyTeller):
        return ""
    try:
        return await engine.policy_label()
    except EngineError:
        return ""


def ranges_of(generation: Generation, epoch: Epoch, told: Told) -> Ranges:
    """The versions of one generation's ids.

    Args:
        generation: as the engine gave it.
        epoch: the time in which it was begun.
        told: what the engine answered before and after.
    """
    length = len(generation.ids_S)
    if generation.policy_version is not None:
        return Ranges(_whole(length, (generation.policy_version, generation.policy_version), ""))
    if not generation.policy_spans:
        return Ranges(_polled(length, epoch, told))
    spans = _joined(generation.policy_spans)
    if (fault := _fault(spans, length)) is not None:
        return Ranges(_whole(length, (None, None), ""), (Note(NoteCode.POLICY_SPANS_BROKEN, fault),))
    versions = _of_constant_label if len(spans) == 1 else _of_label
    return Ranges(
        tuple(PolicyRange(span.start_S, span.end_S, *versions(span.label, epoch), span.label) for span in spans)
    )


def _whole(length: int, versions: _Versions, label: str) -> tuple[PolicyRange, ...]:
    return (PolicyRange(0, length, *versions, label),) if length else ()


def _joined(spans: Sequence[PolicySpan]) -> list[PolicySpan]:
    """Spans without empty ones, equal neighbours joined."""
    joined: list[PolicySpan] = []
    for span in spans:
        if span.start_S == span.end_S:
            continue
        if joined and (joined[-1].label, joined[-1].end_S) == (span.label, span.start_S):
            joined[-1] = PolicySpan(span.label, joined[-1].start_S, span.end_S)
        else:
            joined.append(span)
    return joined


def _fault(spans: Sequence[PolicySpan], length: int) -> str | None:
    at = 0
    for span in spans:
        if span.start_S != at or span.end_S <= span.start_S:
            return f"gap, overlap or reversed span at id {at}"
        at = span.end_S
    return None if at == length else f"spans cover {at} of {length} ids"


def _of_label(label: str, epoch: Epoch) -> _Versions:
    """What a label stands for: lowest and highest version; both None if nobody said."""
    own = decimal_version(label)
    if own is not None:
        return own, own
    mapped = [each.labels[label] for each in epoch.until_now() if label in each.labels]
    return (min(mapped), max(mapped)) if mapped else (None, None)


def _of_constant_label(label: str, epoch: Epoch) -> _Versions:
    """The same for the one label of a whole generation; empty: the engine did not say.

    An announcement without a label speaks of whatever the engine runs. Where labels change on the way, nobody can
    say on which side of the change it was made; where it has another label, it speaks of other weights.
    """
    if not label:
        return epoch.announced()
    found = _of_label(label, epoch)
    speaks_of_all = not any(each.standing.label for each in epoch.until_now())
    return epoch.announced() if found == (None, None) and speaks_of_all else found


def _polled(length: int, epoch: Epoch, told: Told) -> tuple[PolicyRange, ...]:
    if told.before == told.after:
        return _whole(length, _of_constant_label(told.before, epoch), told.before)
    if not told.before or not told.after:
        return _whole(length, (None, None), told.before or told.after)
    ends = tuple(_of_label(label, epoch) for label in (told.before, told.after))
    known = [version for versions in ends for version in versions if version is not None]
    label = f"{told.before}{_BETWEEN}{told.after}"
    return _whole(length, (min(known), max(known)) if len(known) == 2 * len(ends) else (None, None), label)


def hull(tiles: Sequence[PolicyRange]) -> _Versions:
    """Lowest and highest version of all tiles; both None if one of them is unknown, or there is none."""
    lows = [tile.lowest for tile in tiles if tile.lowest is not None]
    highs = [tile.highest for tile in tiles if tile.highest is not None]
    known = bool(tiles) and len(lows) == len(highs) == len(tiles)
    return (min(lows), max(highs)) if known else (None, None)


def worth_keeping(tiles: tuple[PolicyRange, ...]) -> tuple[PolicyRange, ...]:
    """The tiles, unless the hull says it all: one tile whose version is known, or of which the engine said nothing."""
    plain = len(tiles) <= 1 and all(tile.lowest is not None or not tile.label for tile in tiles)
    return () if plain else tiles
