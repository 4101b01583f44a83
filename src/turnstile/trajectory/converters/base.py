"""The seam to the trainers: what a converter states about its trainer, and the one function that it has.

A converter only spells: rows that its trainer cannot take are refused before it is asked, by the `Facts` that it
states, and the dense arrays are derived by `Row`. docs/decisions/0025-converters.md.
"""

from __future__ import annotations

import enum
from typing import Protocol

import msgspec

from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row
from turnstile.trajectory.format import Fields


class Unit(enum.StrEnum):
    """What one sample of a trainer is made of."""

    SEQUENCE = "sequence"
    ROLLOUT = "rollout"
    """All sequences of one rollout."""
    GROUP = "group"
    """All sequences of all rollouts of one group."""


class Rows(enum.StrEnum):
    """What a trainer makes of a rollout with several sequences."""

    ONE = "one"
    """It has room for one: more are refused, or one is chosen by an option."""
    COUNTED = "counted"
    """It takes each for a rollout of its own in its group statistics."""
    TOGETHER = "together"
    """It keeps them together, or is given advantages that were computed over rollouts."""


class Reward(enum.StrEnum):
    """Whether a trainer has a word for an unscored rollout."""

    MAY_BE_UNKNOWN = "may_be_unknown"
    NEEDED = "needed"
    """It would take an unscored rollout for one with some reward."""
    TURNED_INTO_ADVANTAGES = "turned_into_advantages"
    """Its samples carry advantages, which need the rewards of the whole group."""


class Weights(enum.StrEnum):
    """Whether a trainer's samples can weigh tokens."""

    CARRIED = "carried"
    ALL_ONE = "all_one"


class Temperature(enum.StrEnum):
    """What a trainer does with the sampling temperature before it recomputes log-probabilities."""

    ONE_FOR_ALL = "one_for_all"
    """Divides its logits by one setting: recorded numbers must be of that temperature."""
    EACH_TOKEN = "each_token"
    """Divides them by the temperature that stands beside each token."""
    UNKNOWN = "unknown"
    """Left to the trainer behind it."""


class Keeps(enum.StrEnum):
    """Which sequences become samples."""

    TRAINED = "trained"
    """Those with something to train, of the last attempt of rollouts that may be trained."""
    ALL = "all"


class Media(enum.StrEnum):
    """Whether a trainer's samples can carry images."""

    CARRIED = "carried"
    REFUSED = "refused"


class Lost(enum.StrEnum):
    """What a file may hold and a sample has no place for, without harm to the training."""

    POLICY_VERSIONS = "policy versions"
    REWARD_PARTS = "parts of rewards"
    SIDE_ARRAYS = "side arrays"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a trainer can be told, from its own source at the version named in `trainer`."""

    trainer: str
    unit: Unit = Unit.SEQUENCE
    rows: Rows
    reward: Reward
    weights: Weights = Weights.ALL_ONE
    temperature: Temperature = Temperature.ONE_FOR_ALL
    media: Media = Media.REFUSED
    keeps: Keeps = Keeps.TRAINED
    lost: frozenset[Lost] = frozenset({Lost.POLICY_VERSIONS, Lost.REWARD_PARTS, Lost.SIDE_ARRAYS})


class Converter(Protocol):
    """One trainer: a module here and a line in the registry."""

    @property
    def name(self) -> str:
        """The word behind `--for`."""
        ...

    @property
    def facts(self) -> Facts:
        """What the trainer can be told."""
        ...

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """The rows of one unit as the trainer's own fields: plain lists, numbers, texts and dicts.

        Raises: CallerError if the trainer has no word for something in them that only this converter knows of.
        """
        ...
