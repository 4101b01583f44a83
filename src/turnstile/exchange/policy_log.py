"""Which policy version an engine runs, as whoever updates its weights announced it (docs/decisions/0028).

Everything here is what somebody said, never what is likely. A version that nobody named for an engine, or that an
engine may have lost because it was started again, is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated

import msgspec

from turnstile.errors import CallerError

_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")
_LARGEST = 2**63 - 1
_LABELS_KEPT = 1024
"""Labels that are remembered, the latest; a trainer that names each step would fill memory otherwise."""


def decimal_version(label: str) -> int | None:
    """The version that a label is by itself: a decimal int64 as one writes it. None for any other label."""
    if not _DECIMAL.fullmatch(label):
        return None
    version = int(label)
    return version if version <= _LARGEST else None


class Announcement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """From now on an engine samples with this version: the body of POST /policy."""

    version: Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]
    """int64, 0 or more. It may be lower than the one before: training went back to an older checkpoint."""
    label: Annotated[str, msgspec.Meta(max_length=256)] = ""
    """What the engine calls it; empty: the announcement speaks of whatever the engine runs."""
    engine: str = ""
    """Which engine, by name; empty: all of them."""


class Standing(msgspec.Struct, frozen=True):
    """What was announced of one engine last."""

    version: int | None = None
    label: str = ""


class PolicyState(msgspec.Struct, frozen=True):
    """All that a restart has to know."""

    engines: dict[str, Standing] = {}
    """By name."""
    labels: dict[str, int] = {}
    """Which version each announced label stands for, the oldest first."""


class EnginePolicy(msgspec.Struct, frozen=True):
    """One engine in the answer to GET /policy."""

    engine: str
    version: int | None
    """As announced last; null: unknown."""
    label: str
    """The label of that announcement; empty if it had none."""
    held_until: datetime | None
    """null: its calls are not held."""
    running: int
    """Requests that it works on."""
    waiting: int
    """Requests that are held."""


class PolicyPage(msgspec.Struct, frozen=True):
    """The answer to GET /policy."""

    engines: tuple[EnginePolicy, ...]
    labels: dict[str, int]
    """Which version each announced label stands for."""


class Epoch:
    """A time in which nothing was announced for one engine; it ends where the next one begins.

    Whoever is sampling holds the epoch in which it began, and walks from there to the one of now. Epochs that nobody
    holds are gone.
    """

    __slots__ = ("_next", "labels", "standing")

    def __init__(self, standing: Standing, labels: Mapping[str, int]) -> None:
        """Begin with what was announced last, and what each label stands for."""
        self.standing = standing
        self.labels = labels
        self._next: Epoch | None = None

    def follow(self, after: Epoch) -> Epoch:
        """End it with another one."""
        self._next = after
        return after

    def until_now(self) -> Iterator[Epoch]:
        """It and all that came after it."""
        epoch: Epoch | None = self
        while epoch is not None:
            yield epoch
            epoch = epoch._next

    def announced(self) -> tuple[int | None, int | None]:
        """Lowest and highest version announced from it until now; both None if at some time none was known."""
        known = [epoch.standing.version for epoch in self.until_now()]
        versions = [version for version in known if version is not None]
        return (min(versions), max(versions)) if len(versions) == len(known) else (None, None)


class PolicyLog:
    """The announcements in force, for each engine."""

    def __init__(self, engines: Sequence[str] = ("",), state: PolicyState | None = None) -> None:
        """Go on from what was announced before.

        Args:
            engines: their names.
            state: as it was left; what it says of engines of other names is dropped.
        """
        state = state or PolicyState()
        self._labels: Mapping[str, int] = dict(state.labels)
        self._epochs = {name: Epoch(state.engines.get(name, Standing()), self._labels) for name in engines}

    def epoch(self, engine: str = "") -> Epoch:
        """The time that it is for an engine now. Raises: KeyError if no engine has that name."""
        return self._epochs[engine]

    def check(self, announcement: Announcement) -> None:
        """Refuse what cannot be true.

        Raises: CallerError `policy_label_contradicts` if the label is another version by itself, `engine_unknown`.
        """
        own = decimal_version(announcement.label)
        if own is not None and own != announcement.version:
            raise CallerError(
                f"`label` {announcement.label} is version {own} by itself, but `version` is {announcement.version}",
                "Announce the number that the engine is told, or give its weights another name",
                code="policy_label_contradicts",
                param="label",
            )
        self.named(announcement.engine)

    def named(self, engine: str) -> tuple[str, ...]:
        """The engines that a name means; all of them if it is empty.

        Raises: CallerError `engine_unknown`.
        """
        if not engine:
            return tuple(self._epochs)
        if engine not in self._epochs:
            raise CallerError(
                f"No engine is called `{engine[:128]}`",
                f"Use one of {', '.join(self._epochs)}, or leave `engine` out for all",
                code="engine_unknown",
                param="engine",
            )
        return (engine,)

    def after(self, announcement: Announcement) -> PolicyState:
        """What will be known once an announcement is taken. Raises: as `check`."""
        self.check(announcement)
        standing = Standing(announcement.version, announcement.label)
        state = self.state()
        labels = dict(state.labels)
        if announcement.label:
            labels.pop(announcement.label, None)
            labels[announcement.label] = announcement.version
        kept = dict(list(labels.items())[-_LABELS_KEPT:])
        return PolicyState(state.engines | dict.fromkeys(self.named(announcement.engine), standing), kept)

    def without(self, engine: str) -> PolicyState:
        """What will be known once an engine may have lost its weights: of it, nothing. Raises: CallerError."""
        state = self.state()
        return PolicyState(state.engines | dict.fromkeys(self.named(engine), Standing()), state.labels)

    def take(self, state: PolicyState) -> None:
        """Let a state be in force from now on."""
        self._labels = dict(state.labels)
        for name, epoch in self._epochs.items():
            self._epochs[name] = epoch.follow(Epoch(state.engines.get(name, Standing()), self._labels))

    def state(self) -> PolicyState:
        """What is in force."""
        return PolicyState({name: epoch.standing for name, epoch in self._epochs.items()}, dict(self._labels))

    def version(self, engine: str = "") -> int | None:
        """The version announced last for an engine; None = unknown."""
        return self._epochs[engine].standing.version
