"""How far recomputed log-probabilities lie from recorded ones, in numbers and in a word."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable

import msgspec

BEYOND = 0.05
"""A difference that the sum of what noise does rarely reaches."""
_MAX_EXPONENT = 80.0


class Verdict(enum.StrEnum):
    """What the figures of a sequence say."""

    EXACT = "exact"
    """The same weights and the same ids, in float32 on both sides."""
    ENGINE_NOISE = "engine noise"
    """The same ids; the engine's weights or matrix products are coarser than float32."""
    FAULT = "fault"
    NOT_COMPARED = "not compared"


class Limits(msgspec.Struct, frozen=True):
    """Up to where differences are noise of an engine, for many tokens; few tokens may stray farther.

    The defaults hold for bfloat16 and for weights of four bits (docs/decisions/0026-audit.md); an engine's own are
    found by an audit of plain rollouts of one turn: twice its figures.
    """

    mean_abs: float = 0.08
    mean: float = 0.02
    k3: float = 5e-3
    exact_mean_abs: float = 1e-4
    exact_max_abs: float = 1e-3

    def without_noise(self) -> Limits:
        """For an engine that computes in float32 with the same weights: what is not exact is a fault."""
        return msgspec.structs.replace(self, mean_abs=0.0, mean=0.0, k3=0.0)

    @classmethod
    def twice(cls, figures: Figures) -> Limits:
        """For an engine whose noise was measured."""
        least = cls()
        return cls(
            mean_abs=max(2 * figures.mean_abs, least.exact_mean_abs),
            mean=max(2 * abs(figures.mean), least.exact_mean_abs),
            k3=max(2 * figures.k3, least.exact_mean_abs**2),
        )


class Figures(msgspec.Struct, frozen=True):
    """Differences d = recomputed - recorded over tokens, in natural logarithms."""

    tokens: int = 0
    mean_abs: float = 0.0
    max_abs: float = 0.0
    mean: float = 0.0
    """Near 0 for noise, which goes both ways."""
    beyond: float = 0.0
    """Share of tokens whose |d| exceeds 0.05."""
    k3: float = 0.0
    """Mean of exp(d) - 1 - d: never negative, so differences of both signs cannot cancel."""

    def verdict(self, limits: Limits) -> Verdict:
        """What they say."""
        if not self.tokens:
            return Verdict.NOT_COMPARED
        if self.mean_abs <= limits.exact_mean_abs and self.max_abs <= limits.exact_max_abs:
            return Verdict.EXACT
        # The mean of few tokens strays; d has about the spread of |d|, and k3 is one half of its square.
        stray = 3.0 / math.sqrt(self.tokens)
        small = (
            self.mean_abs <= limits.mean_abs * (1.0 + stray)
            and abs(self.mean) <= limits.mean + stray * min(self.mean_abs, limits.mean_abs)
            and self.k3 <= limits.k3 * (1.0 + 2.0 * stray)
        )
        return Verdict.ENGINE_NOISE if small else Verdict.FAULT


def figures_of(differences: Iterable[float]) -> Figures:
    """The figures of differences, each recomputed - recorded; an infinite one counts as 80."""
    clipped = [max(-_MAX_EXPONENT, min(_MAX_EXPONENT, each)) for each in differences]
    if not clipped:
        return Figures()
    count = len(clipped)
    return Figures(
        tokens=count,
        mean_abs=math.fsum(map(abs, clipped)) / count,
        max_abs=max(map(abs, clipped)),
        mean=math.fsum(clipped) / count,
        beyond=sum(1 for each in clipped if abs(each) > BEYOND) / count,
        k3=math.fsum(math.expm1(each) - each for each in clipped) / count,
    )


def together(parts: Iterable[Figures]) -> Figures:
    """The figures of all tokens of all parts."""
    found = [part for part in parts if part.tokens]
    count = sum(part.tokens for part in found)
    if not count:
        return Figures()

    def mean_of(name: str) -> float:
        return math.fsum(float(getattr(part, name)) * part.tokens for part in found) / count

    return Figures(
        tokens=count,
        mean_abs=mean_of("mean_abs"),
        max_abs=max(part.max_abs for part in found),
        mean=mean_of("mean"),
        beyond=mean_of("beyond"),
        k3=mean_of("k3"),
    )
