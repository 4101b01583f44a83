"""What a person decides about a conversion; nothing of it is ever guessed."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from turnstile.errors import CallerError

Length = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class OneSequence(enum.StrEnum):
    """Which sequence stands for a rollout where a trainer has room for one."""

    REFUSE = "refuse"
    LONGEST = "longest"
    """The first of those with the most ids."""
    LAST = "last"


class RawLogprobs(enum.StrEnum):
    """What to do with log-probabilities that the trainer would compare with other numbers."""

    REFUSE = "refuse"
    ALLOW = "allow"


class Images(enum.StrEnum):
    """What to do with images that the trainer's samples have no place for."""

    REFUSE = "refuse"
    APART = "apart"
    """Rows are made without them; whoever asks hands them to the trainer by another way."""


class Advantage(enum.StrEnum):
    """How a rollout's advantage comes from the rewards of its group."""

    CENTERED = "centered"
    """Its reward less the mean of its group."""
    GRPO = "grpo"
    """That, divided by the group's standard deviation plus 1e-6."""
    RLOO = "rloo"
    """Its reward less the mean of the others in its group."""
    REWARD = "reward"
    """Its reward as it is: for trainers that take a baseline off themselves."""
    RECORDED = "recorded"
    """What the file has for each token."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one conversion."""

    model: str = ""
    """Convert the sequences of this model; empty = there is only one."""
    one_sequence: OneSequence = OneSequence.REFUSE
    raw_logprobs: RawLogprobs = RawLogprobs.REFUSE
    images: Images = Images.REFUSE
    advantage: Advantage = Advantage.CENTERED
    drop: frozenset[str] = frozenset()
    """Codes of refusals at which a rollout, or a sequence, is left out and counted instead."""
    group_size: Length = 0
    """How many rollouts each group must have; 0 = any number."""
    max_length: Length = 0
    """Ids that a row of the trainer holds; 0 = no limit."""
    prompt_length: Length = 0
    """Ids that the prompt region of a row holds; 0 = as many as the prompt has."""
    env_name: str = "turnstile"
    """The environment's name, for trainers that want one."""


def options_of(given: dict[str, object]) -> Options:
    """Options from words, as the command line and `turnstile.convert` have them.

    Raises: CallerError `option_invalid` for a name or a value that there is not.
    """
    try:
        return msgspec.convert(given, Options)
    except msgspec.ValidationError as error:
        raise CallerError(
            f"An option of the conversion is wrong: {error}",
            f"Options are {', '.join(Options.__struct_fields__)}; their values stand in docs/train/README.md",
            code="option_invalid",
        ) from error
