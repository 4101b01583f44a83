"""How exact a bridge is, one pattern of requests at a time: what a certificate says and what was found out in use.

Source: docs/decisions/0009. A pattern holds all of a request that may set a bridge off a small conversation apart
from one off the client's whole history; no text is part of it.
"""

from __future__ import annotations

import enum
import itertools
from collections import Counter
from collections.abc import Callable

import msgspec

from turnstile.conversation import Call, Ending, JsonText, Kind, Message, kind_of
from turnstile.generation import Cut, HeldAnswer

_LEARNED_KEPT = 4096


class Verdict(enum.StrEnum):
    """What became of one shape of request, held against one whole render."""

    EXACT = "exact"
    """The ids are those of the whole render, read off a small conversation."""
    NEEDS_HISTORY = "needs_history"
    """The same, but only read off the client's whole history, which is rendered for it."""
    DIFFERENT = "different"
    """The splice keeps what was sampled; the whole render puts it elsewhere or writes it otherwise."""
    UNPROVEN = "unproven"
    """The template raises on the whole conversation but not on the small one: it is spliced, and nothing proves it."""
    REFUSED = "refused"
    """No splice: rendered again, or an error where the template raises on that too."""


class Pattern(msgspec.Struct, frozen=True):
    """What two requests have in common for which a bridge can be had in the same way."""

    answer: Kind
    """Of the held answer."""
    cut: Cut
    new: tuple[Kind, ...]
    """Of the messages behind it; of more than two of a kind in a row, two."""
    ending: Ending
    past: frozenset[tuple[Kind, Kind]]
    """Which kinds follow each other up to the answer; the first follows `^`."""
    offers_tools: bool
    kwargs: JsonText

    def __str__(self) -> str:
        past = ", ".join(sorted(f"{before} {behind}" for before, behind in self.past))
        cut = "" if self.cut is Cut.NONE else f" cut in its {self.cut}"
        return f"{self.answer}{cut}, then {' '.join(self.new)} ({self.ending}), behind {past}; arguments {self.kwargs}"


def pattern_of(held: HeldAnswer, new_M: tuple[Message, ...], call: Call) -> Pattern:
    """The pattern of a request that goes on from a held answer."""
    past = held.past
    return Pattern(
        answer=past.last,
        cut=held.cut,
        new=tuple(itertools.chain.from_iterable(tuple(run)[:2] for _, run in itertools.groupby(map(kind_of, new_M)))),
        ending=call.ending,
        past=past.neighbours,
        offers_tools=bool(call.tools),
        kwargs=call.template_kwargs,
    )


class Proof(msgspec.Struct, frozen=True):
    """What is known of a pattern."""

    verdict: Verdict
    detail: str = ""
    """Why it is not exact."""


class Proofs:
    """What is known of a served template. Threads may share it: two that find out the same write the same."""

    def __init__(self) -> None:
        self.refusal = ""
        """Why the certificate refuses the template as a whole; empty if it does not, or there is none."""
        self._certified: dict[Pattern, Proof] = {}
        self._learned: dict[Pattern, Proof] = {}
        self._drops_thinking: dict[tuple[JsonText, bool], bool] = {}

    def known(self, pattern: Pattern) -> Proof | None:
        """What is settled of a pattern; None if nothing is.

        That a template raised on one client's history settles nothing: a malformed call in it may have been why.
        """
        found = self._certified.get(pattern)
        if found is not None:
            return found
        learned = self._learned.get(pattern)
        return None if learned is None or learned.verdict is Verdict.UNPROVEN else learned

    def certify(self, pattern: Pattern, proof: Proof) -> None:
        """Take over what a certificate says."""
        self._certified[pattern] = proof

    def learn(self, pattern: Pattern, proof: Proof) -> bool:
        """Remember what a use of a pattern showed; says whether its verdict is news."""
        before = self._learned.get(pattern)
        if before is None and len(self._learned) >= _LEARNED_KEPT:
            self._learned.clear()
        self._learned[pattern] = proof
        return before is None or before.verdict is not proof.verdict

    def drops_thinking(self, call: Call, compute: Callable[[], bool]) -> bool:
        """Whether the template drops the thinking of earlier turns, computed once a set of arguments."""
        key = (call.template_kwargs, bool(call.tools))
        known = self._drops_thinking.get(key)
        if known is None:
            if len(self._drops_thinking) >= _LEARNED_KEPT:
                self._drops_thinking.clear()
            known = self._drops_thinking[key] = compute()
        return known

    def counts(self) -> Counter[str]:
        """How many patterns are known: `certified`, and those learned in use by their verdict."""
        learned = Counter(proof.verdict.value for proof in tuple(self._learned.values()))
        return Counter({"certified": len(self._certified)}) + learned
