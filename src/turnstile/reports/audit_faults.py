"""What is wrong with numbers that do not fit: the hypotheses of the audit, in order, until one restores the calm.

Order: numbers that stand one token too early or too late, logits read at their own position, another temperature,
another filter, and last one id that is not the one the engine had, found by where the trouble begins.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from turnstile.reports.audit_figures import Figures, Limits, Verdict, figures_of
from turnstile.reports.audit_run import Asked, FaultKind, Finding, Rerun, Run, is_explained_by, own_rows
from turnstile.reports.audit_spike import Compared, find_spike
from turnstile.reports.audit_subject import NO_FILTER, Subject

_FIT_TOKENS = 128
_FIT_STEPS = 24
_LOWEST, _HIGHEST = 0.05, 4.0


class Search:
    """Looks for the fault of one sequence."""

    def __init__(self, subject: Subject, run: Run, rerun: Rerun, limits: Limits) -> None:
        self._subject = subject
        self._run = run
        self._rerun = rerun
        self._limits = limits
        self._drawn_D = tuple(each for each in subject.drawn_D if each.at > 0)
        self._asked_D = own_rows(self._drawn_D, subject.token_ids)
        self._found_D = run.logprobs(self._asked_D)
        self._differences_D = [a - b.logprob for a, b in zip(self._found_D, self._drawn_D, strict=True)]
        self.figures = figures_of(self._differences_D)

    def finding(self) -> Finding | None:
        """What is wrong; None: nothing, as far as the limits let one see."""
        verdict = self.figures.verdict(self._limits)
        if verdict in (Verdict.EXACT, Verdict.NOT_COMPARED):
            return None
        for hypothesis in (self._shifted, self._own_position, self._temperatures, self._filters):
            for found in hypothesis():
                if is_explained_by(found.figures, self.figures, self._limits):
                    return found
        compared = Compared(self._subject, self._drawn_D, tuple(self._asked_D), tuple(self._differences_D))
        if compared.begins_exact(self._limits):
            return find_spike(compared, self._run, self._rerun, self._limits.without_noise())
        if verdict is Verdict.FAULT or self._subject.other_prompts:
            return find_spike(compared, self._run, self._rerun, self._limits)
        return None

    def _shifted(self) -> Iterator[Finding]:
        for step, kind, said in (
            (1, FaultKind.TOO_EARLY, "each recorded number belongs to the token behind its own"),
            (-1, FaultKind.TOO_LATE, "each recorded number belongs to the token before its own"),
        ):
            number_by_place = {each.at: self._found_D[index] for index, each in enumerate(self._drawn_D)}
            differences = [
                number_by_place[each.at + step] - each.logprob
                for each in self._drawn_D
                if each.at + step in number_by_place
            ]
            yield Finding(kind, f"The log-probabilities are shifted: {said}", figures=figures_of(differences))

    def _own_position(self) -> Iterator[Finding]:
        asked = [replace(each, row=each.row + 1) for each in self._asked_D]
        yield Finding(
            FaultKind.OWN_POSITION,
            "The recorded numbers were read from the logits at each token's own position, not from those before it",
            figures=self._compared(asked),
        )

    def _compared(self, asked_D: list[Asked], run: Run | None = None) -> Figures:
        found = (run or self._run).logprobs(asked_D)
        return figures_of(a - b.logprob for a, b in zip(found, self._drawn_D, strict=True))

    def _temperatures(self) -> Iterator[Finding]:
        stated = sorted({each.temperature for each in self._drawn_D})
        named = {1.0, *(each.sampling_temperature for each in self._drawn_D if each.sampling_temperature)}
        for temperature in [*sorted(named), None]:
            # People set temperatures of two decimals; what fits best is near one.
            fitted = temperature if temperature is not None else round(self._fitted(), 2)
            if stated == [fitted]:
                continue
            shown = " and ".join(f"{each:g}" for each in stated)
            yield Finding(
                FaultKind.TEMPERATURE,
                f"The recorded numbers are those of temperature {fitted:g}; the file says {shown}",
                temperature=fitted,
                figures=self._compared(self._at(fitted)),
            )

    def _at(self, temperature: float) -> list[Asked]:
        return [replace(each, temperature=temperature) for each in self._asked_D]

    def _fitted(self) -> float:
        """The temperature from 0.05 to 4 that fits best, by ternary search over at most 128 tokens."""
        few = slice(None, None, max(1, len(self._asked_D) // _FIT_TOKENS))
        asked, drawn = self._asked_D[few], self._drawn_D[few]

        def misfit(temperature: float) -> float:
            found = self._run.logprobs([replace(each, temperature=temperature) for each in asked])
            return figures_of(a - b.logprob for a, b in zip(found, drawn, strict=True)).mean_abs

        low, high = _LOWEST, _HIGHEST
        for _ in range(_FIT_STEPS):
            third = (high - low) / 3
            if misfit(low + third) <= misfit(high - third):
                high -= third
            else:
                low += third
        return (low + high) / 2

    def _filters(self) -> Iterator[Finding]:
        if any(each.kept or each.filter.is_on for each in self._asked_D):
            yield Finding(
                FaultKind.FILTER,
                "The recorded numbers are those of the whole distribution, not of what the filters left",
                figures=self._compared([replace(each, filter=NO_FILTER, kept=()) for each in self._asked_D]),
            )
