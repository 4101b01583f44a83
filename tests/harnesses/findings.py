"""What came of a run: figures for the table, and every promise that was not kept, as a sentence."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from catalogue import Harness
from played import TURNS

from engine import PlayedEngine, Trouble
from turnstile.trajectory.files import write
from turnstile.trajectory.format import Rollout
from turnstile.trajectory.shapes import CallInfo
from turnstile.trajectory.validate import validate_file

BROKEN = ("error", "abort")
"""How calls finish that have no whole answer."""
CONTINUED = "continued_from_aborted"


@dataclass(frozen=True)
class Report:
    """One run, in figures."""

    harness: str
    dialect: str
    trouble: str
    requests: int
    auxiliary: int
    failed: int
    """Calls without a whole answer."""
    roots: int
    """Of the main agent."""
    forks: list[str]
    notes: dict[str, int]
    finished: bool
    """Whether the task was done."""
    seconds: float
    problems: list[str]
    """Promises that were not kept."""


@dataclass
class Findings:
    """The evidence of a run."""

    harness: Harness
    trouble: Trouble
    engine: PlayedEngine
    rollout: Rollout
    repository: Path
    folder: Path
    seconds: float = 0.0
    exit_status: int | None = 0

    def report(self) -> Report:
        """Judge."""
        answered = [call for call in self.rollout.calls if call.finish not in BROKEN]
        main = [call for call in answered if self._is_main(call)]
        notes = Counter(note for call in answered for note in self._notes(call))
        return Report(
            harness=self.harness.name,
            dialect=self.harness.dialect,
            trouble=self.trouble.value,
            requests=len(main),
            auxiliary=len(answered) - len(main),
            failed=len(self.rollout.calls) - len(answered),
            roots=sum(call.history == "root" for call in main),
            forks=[_reason(call) for call in answered if _is_break(call)],
            notes=dict(notes),
            finished=self._is_repaired(),
            seconds=round(self.seconds, 1),
            problems=[*self._problems(main, answered)],
        )

    def _is_main(self, call: CallInfo) -> bool:
        return call.kind != "auxiliary" and not self._lacks_tools(call)

    def _lacks_tools(self, call: CallInfo) -> bool:
        return self.harness.has_tools and self.rollout.heads[call.head].tools is None

    def _notes(self, call: CallInfo) -> list[str]:
        """Codes; of a quirk, its name."""
        facts = self.rollout.extra.get("turnstile.calls", {})
        assert isinstance(facts, dict)
        notes = facts.get(call.call_id, {}).get("notes", [])
        return [note["detail"] if note["code"] == "quirk" else note["code"] for note in notes]

    def _goes_on(self, call: CallInfo) -> bool:
        """Whether it is said to go on from the beginning of an answer that broke off."""
        return call.finish not in BROKEN and CONTINUED in self._notes(call)

    def _is_repaired(self) -> bool:
        test = subprocess.run(["python3", "test_calc.py"], cwd=self.repository, capture_output=True, check=False)
        return test.returncode == 0

    def _problems(self, main: list[CallInfo], answered: list[CallInfo]) -> Iterator[str]:
        if self.trouble is Trouble.NONE or self.trouble.value in self.harness.survives:
            yield from self._unfinished()
        if self.trouble is Trouble.NONE:
            yield from self._unlike_the_table(main, answered)
        elif not self.engine.went_wrong:
            yield "The engine's fault was never met"
        real = self.harness.forks if self.trouble is Trouble.NONE else self.harness.forks | self.harness.repairs
        for call in answered:
            if _is_break(call) and _reason(call) not in real:
                yield f"{call.call_id} is {_reason(call)}"
        yield from self._broken_record()
        yield from self._untrue_samples()
        yield from self._untrue_beginnings()

    def _unfinished(self) -> Iterator[str]:
        if self.exit_status is None:
            yield f"It did not end within {self.harness.limit_s:.0f} s"
        elif self.exit_status != 0:
            yield f"It ended with status {self.exit_status}"
        if not self._is_repaired():
            yield "The test of the repository does not pass"

    def _unlike_the_table(self, main: list[CallInfo], answered: list[CallInfo]) -> Iterator[str]:
        if len(main) != TURNS:
            yield f"The main agent made {len(main)} calls, not {TURNS}"
        if (roots := sum(call.history == "root" for call in main)) != 1:
            yield f"The main agent has {roots} roots"
        if len(answered) - len(main) != self.harness.auxiliary:
            yield f"{len(answered) - len(main)} auxiliary calls, not {self.harness.auxiliary}"
        for call in answered:
            if self._lacks_tools(call) and call.kind != "auxiliary":
                yield f"{call.call_id} has no tools and is not marked auxiliary"
        failed = [call.call_id for call in self.rollout.calls if call.finish in BROKEN]
        if failed:
            yield f"Calls failed: {failed}"
        if (handed := sum(map(len, self.engine.answers))) != self.rollout.token_counts.sampled:
            yield f"The engine sampled {handed} tokens, the trajectory counts {self.rollout.token_counts.sampled}"

    def _broken_record(self) -> Iterator[str]:
        file = self.folder / "trajectory.jsonl"
        write(file, [self.rollout])
        yield from (str(found) for found in validate_file(file) if found.code.startswith("E"))
        counts = self.rollout.token_counts
        if counts.sampled != counts.trainable + sum(counts.masked.values()) + sum(counts.discarded.values()):
            yield f"Tokens are lost: {counts}"

    def _untrue_samples(self) -> Iterator[str]:
        """A trainable stretch must be an answer as the engine gave it, whole; each call's is trained once at most.

        Of a broken answer nothing may be trained, unless the harness keeps its finished items and goes on from them:
        then its beginning, in a call that says that it was aborted.
        """
        given = Counter(tuple(answer) for answer in self.engine.answers)
        trained: Counter[tuple[int, ...]] = Counter()
        lines: Counter[int] = Counter()
        for line, ids in self._trained():
            lines[line] += 1
            if self.rollout.calls[line].finish not in BROKEN:
                trained[ids] += 1
            elif not any(answer[: len(ids)] == ids for answer in given):
                yield f"Trained of a broken answer, and not its beginning: {self.engine.text(list(ids))!r}"
        for answer, times in trained.items():
            if times > given[answer]:
                yield f"Trained {times} times, given {given[answer]} times: {self.engine.text(list(answer))!r}"
        yield from (f"Call {line} is trained {times} times" for line, times in lines.items() if times > 1)

    def _untrue_beginnings(self) -> Iterator[str]:
        """What a call goes on from is an aborted answer's beginning, known whole and trained; no other such is."""
        calls = self.rollout.calls
        trained = {line for line, _ in self._trained()}
        begun = {call.parent for call in calls if self._goes_on(call)}
        for call in filter(self._goes_on, calls):
            parent = None if call.parent is None else calls[call.parent]
            if parent is None or parent.finish != "abort":
                yield f"{call.call_id} goes on from an aborted answer, but its parent is none"
            elif not parent.complete or call.parent not in trained:
                yield f"{call.call_id} goes on from {parent.call_id}, which is not trained"
        for line in sorted(trained - begun):
            if calls[line].finish in BROKEN:
                yield f"{calls[line].call_id} broke off and is trained, but no call goes on from it"

    def _trained(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Each trainable stretch, with the line of its call."""
        for sequence in self.rollout.sequences:
            ids = sequence.token_ids.tolist()
            for segment, _ in sequence.sampled_segments():
                if segment.trainable:
                    yield segment.call or 0, tuple(ids[segment.start : segment.end])


def _reason(call: CallInfo) -> str:
    """Without the place that some reasons name."""
    return f"{call.history}:{(call.history_reason or '').split(':')[0]}"


def _is_break(call: CallInfo) -> bool:
    return call.history in ("forked", "rerendered")
