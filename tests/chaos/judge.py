"""What must hold of a store after everything that was done to it; every breach is a sentence."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from crowd import Crowd, Seen

from turnstile.history.forest import Forest
from turnstile.journal import TurnCommitted
from turnstile.reports.store_check import StoreCheck, Weight
from turnstile.store import Reader
from turnstile.templates.tokenizer import Tokenizer
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.format import Rollout
from turnstile.trajectory.validate import validate

_NONCE = re.compile(r"\b[a-z]{12}\b")


def lost(store: Path, seen: Sequence[Seen]) -> Iterator[str]:
    """Answers that a client saw whole and that the journal does not have, word for word."""
    asked: dict[str, list[Seen]] = defaultdict(list)
    for each in seen:
        asked[each.rollout_id].append(each)
    with Reader.open(store) as reader:
        for rollout_id, answers in asked.items():
            kept = {
                record.call_id: record.choices[0].message.text
                for record in reader.records(rollout_id)
                if isinstance(record, TurnCommitted)
            }
            for each in answers:
                if (found := kept.get(each.call_id)) != each.text:
                    place = f"{rollout_id} turn {each.turn}, {each.call_id}"
                    yield f"{place}: answered was {each.text!r}, kept is {found!r}"


def unsettled(store: Path, seen: Sequence[Seen]) -> Iterator[str]:
    """What is wrong with rollouts in mid-life: a call without an end behind it, a turn twice, a broken trajectory."""
    most: dict[str, int] = defaultdict(int)
    for each in seen:
        most[each.rollout_id] = max(most[each.rollout_id], each.turn + 1)
    with Reader.open(store) as reader:
        for rollout_id, turns in most.items():
            forest = Forest.of(reader.records(rollout_id))
            # Agents ask one thing at a time: what a killed process left open has its end before the next call begins.
            if len(forest.open_calls) > 1:
                yield f"{rollout_id}: {len(forest.open_calls)} calls are open at once"
            rollout = assemble(forest)
            yield from (f"{rollout_id}: {each}" for each in validate(rollout) if each.code.startswith("E"))
            if (kept := _trained(rollout)) > turns + 1:
                yield f"{rollout_id}: {kept} turns are trained, its agent had {turns} and may have had one more"


def unsound(store: Path) -> Iterator[str]:
    """What `turnstile store check` calls an error."""
    with Reader.open(store) as reader:
        yield from (str(each) for each in StoreCheck(store, reader).findings() if each.weight is Weight.ERROR)


def unfaithful(store: Path, crowd: Crowd, tokenizer: Tokenizer) -> Iterator[str]:
    """Rollouts whose trajectory is not what their agent lived through: each turn once, whole, and nobody else's."""
    # One whose agent died in its first call saw nothing, and has its nonce all the same.
    nonces = {crowd.nonce(each): each for each in {seen.rollout_id for seen in crowd.seen} | crowd.finished}
    told: dict[str, dict[int, str]] = defaultdict(dict)
    for seen in crowd.seen:
        told[seen.rollout_id][seen.turn] = seen.text
    with Reader.open(store) as reader:
        for rollout_id in sorted(crowd.finished):
            rollout = assemble(Forest.of(reader.records(rollout_id)))
            yield from (f"{rollout_id}: {each}" for each in validate(rollout) if each.code.startswith("E"))
            if rollout_id not in crowd.abandoned:
                yield from _turns(rollout, told[rollout_id])
            yield from _foreign(rollout, nonces, tokenizer)


def _trained(rollout: Rollout) -> int:
    return sum(call.kind == "agent" for call in rollout.calls)


def _turns(rollout: Rollout, told: dict[int, str]) -> Iterator[str]:
    if (trained := _trained(rollout)) != len(told):
        yield f"{rollout.rollout_id}: {trained} turns are trained, its agent had {len(told)}"
    if len(rollout.sequences) != 1:
        yield f"{rollout.rollout_id}: {len(rollout.sequences)} sequences for one conversation"


def _foreign(rollout: Rollout, nonces: dict[str, str], tokenizer: Tokenizer) -> Iterator[str]:
    for sequence in rollout.sequences:
        found = set(_NONCE.findall(tokenizer.decode(sequence.token_ids))) & nonces.keys()
        if rollout.rollout_id not in {nonces[nonce] for nonce in found}:
            yield f"{rollout.rollout_id}: lacks its own nonce"
        for nonce in found:
            if nonces[nonce] != rollout.rollout_id:
                yield f"{rollout.rollout_id}: holds the nonce of {nonces[nonce]}"
