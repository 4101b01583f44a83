"""The audit: recorded log-probabilities against those that the model gives for the same ids in float32."""

from __future__ import annotations

import hashlib
import heapq
from array import array
from collections.abc import Iterator
from collections.abc import Sequence as Ordered
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import msgspec

from turnstile.errors import CallerError, StoreError
from turnstile.reports.audit_faults import Search
from turnstile.reports.audit_figures import Figures, Limits, Verdict, together
from turnstile.reports.audit_run import Finding, Run
from turnstile.reports.audit_subject import KeptSet, Subject, subject_of
from turnstile.tokens import IdRun
from turnstile.trajectory.files import members, read
from turnstile.trajectory.format import Rollout, Sequence
from turnstile.trajectory.npy import from_npy
from turnstile.trajectory.side_files import SideFiles, SideKind, SideSource


class Model(Protocol):
    """What the numbers are recomputed with."""

    def run(self, subject: Subject, token_ids: IdRun, side: SideSource) -> Run:
        """Send ids through the model, with the images of a sequence. Raises: CallerError, StoreError."""
        ...


class SequenceAudit(msgspec.Struct, frozen=True):
    """What was found of one sequence."""

    rollout_id: str
    attempt: int
    sequence_id: str
    verdict: Verdict
    figures: Figures
    finding: Finding | None = None
    """The fault, if the verdict is one."""
    tokens: int = 0
    """Of the whole sequence."""
    not_compared: tuple[str, ...] = ()
    """Why sampled tokens were left out."""


class Total(msgspec.Struct, frozen=True):
    """All sequences together. The verdict is the worst of theirs."""

    verdict: Verdict
    figures: Figures
    sequences: dict[str, int]
    """How many by verdict."""


class Chosen(msgspec.Struct, frozen=True):
    """The sequences of a file that are to be audited."""

    sequences: int
    tokens: int
    sequence_ids: frozenset[str] | None = None
    """None = all of them."""


def choose(path: Path, *, served: str | None = None, sample: int | None = None) -> Chosen:
    """Read a file, or a folder of files, and say what an audit of it is to do.

    Args:
        path: the file or folder.
        served: only sequences of the model that was served under this name; None = of the only one.
        sample: so many sequences at most, chosen by the hash of their ids: the same ones each time.

    Raises: CallerError if the file cannot be read, or has sequences of several models and none is named.
    """
    names: set[str] = set()
    found = tokens = 0
    # The largest hash stands on top and makes room for a smaller one.
    smallest: list[tuple[int, str, int]] = []
    for rollout in read(path):
        for sequence in rollout.sequences:
            names.add(rollout.heads[sequence.head].model)
            if not _is_of(rollout, sequence, served):
                continue
            found += 1
            tokens += len(sequence.token_ids)
            if sample is not None:
                order = int.from_bytes(hashlib.sha256(_key(rollout, sequence).encode()).digest()[:8])
                heapq.heappush(smallest, (-order, _key(rollout, sequence), len(sequence.token_ids)))
                if len(smallest) > sample:
                    heapq.heappop(smallest)
    if served is None and len(names) > 1:
        raise CallerError(
            f"{path} has sequences of several models: {', '.join(sorted(names))}",
            "Name the one that is given, as it was served: --served NAME",
            code="model_ambiguous",
        )
    if sample is None:
        return Chosen(found, tokens)
    return Chosen(len(smallest), sum(each[2] for each in smallest), frozenset(each[1] for each in smallest))


def audit(
    path: Path, model: Model, chosen: Chosen, *, served: str | None = None, limits: Limits | None = None
) -> Iterator[SequenceAudit]:
    """Audit the chosen sequences, in order of the file.

    Raises: CallerError if the model is not the one that sampled; StoreError if bytes beside the file are not there.
    """
    for member in members(path):
        side = SideFiles(member)
        for rollout in read(member):
            for sequence in rollout.sequences:
                wanted = chosen.sequence_ids is None or _key(rollout, sequence) in chosen.sequence_ids
                if wanted and _is_of(rollout, sequence, served):
                    yield audit_sequence(rollout, sequence, model, side, limits or Limits())


def audit_sequence(
    rollout: Rollout, sequence: Sequence, model: Model, side: SideSource, limits: Limits
) -> SequenceAudit:
    """Audit one sequence of a rollout. Raises: CallerError, StoreError as `audit`."""
    subject = subject_of(rollout, sequence, lambda of: _kept_sets(of, side))
    figures, finding = Figures(), None
    if any(each.at > 0 for each in subject.drawn_D):

        def rerun(token_ids: IdRun) -> Run:
            return model.run(subject, token_ids, side)

        search = Search(subject, rerun(subject.token_ids), rerun, limits)
        figures, finding = search.figures, search.finding()
    return SequenceAudit(
        rollout_id=rollout.rollout_id,
        attempt=rollout.attempt,
        sequence_id=sequence.sequence_id,
        verdict=Verdict.FAULT if finding is not None else figures.verdict(limits),
        figures=figures,
        finding=finding,
        tokens=len(sequence.token_ids),
        not_compared=subject.left_out,
    )


def total(audits: Ordered[SequenceAudit]) -> Total:
    """The sum of what was found."""
    counts = {verdict: sum(1 for each in audits if each.verdict is verdict) for verdict in Verdict}
    worst = next(
        (each for each in (Verdict.FAULT, Verdict.ENGINE_NOISE, Verdict.EXACT) if counts[each]), Verdict.NOT_COMPARED
    )
    return Total(worst, together(each.figures for each in audits), {each.value: counts[each] for each in Verdict})


def _is_of(rollout: Rollout, sequence: Sequence, served: str | None) -> bool:
    return served is None or rollout.heads[sequence.head].model == served


def _key(rollout: Rollout, sequence: Sequence) -> str:
    return f"{rollout.rollout_id}#{rollout.attempt}/{sequence.sequence_id}"


def _kept_sets(sequence: Sequence, side: SideSource) -> list[KeptSet] | None:
    entries = [sequence.arrays.get(name) for name in ("kept_ids", "kept_offsets")]
    kept: list[array[int]] = []
    for entry in entries:
        if entry is None:
            return None
        try:
            stored = from_npy(side.side_bytes(SideKind.ARRAYS, entry.sha256))
            kept.append(array("i", stored.data))
        except ValueError as error:
            raise _damaged(entry.sha256, str(error)) from error
    ids, offsets = kept
    if len(offsets) != len(sequence.logprobs) + 1:
        raise _damaged(entries[1].sha256 if entries[1] else "", f"has {len(offsets)} offsets")
    return [tuple(ids[start:end]) for start, end in pairwise(offsets)]


def _damaged(name: str, why: str) -> StoreError:
    return StoreError(f"The side array {name[:12]} {why}", "Run `turnstile validate FILE`")
