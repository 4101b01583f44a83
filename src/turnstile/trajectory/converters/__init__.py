"""Converters: rollouts into the shapes of single trainers. One module and one line here for each."""

from __future__ import annotations

from turnstile.errors import CallerError
from turnstile.trajectory.converters.areal import AReal
from turnstile.trajectory.converters.art import Art
from turnstile.trajectory.converters.atif import Atif
from turnstile.trajectory.converters.atropos import Atropos
from turnstile.trajectory.converters.base import Converter
from turnstile.trajectory.converters.miles import Miles
from turnstile.trajectory.converters.nemo_gym import NemoGym
from turnstile.trajectory.converters.nemo_rl import NemoRl
from turnstile.trajectory.converters.openrlhf import OpenRlhf
from turnstile.trajectory.converters.prime_rl import PrimeRl
from turnstile.trajectory.converters.skyrl import SkyRl
from turnstile.trajectory.converters.slime import Slime
from turnstile.trajectory.converters.tinker import Tinker
from turnstile.trajectory.converters.trl import Trl
from turnstile.trajectory.converters.trl_async import TrlAsync
from turnstile.trajectory.converters.verifiers import Verifiers
from turnstile.trajectory.converters.verl import Verl

CONVERTERS: tuple[Converter, ...] = (
    Trl(),
    TrlAsync(),
    Verl(),
    PrimeRl(),
    Verifiers(),
    Slime(),
    Miles(),
    SkyRl(),
    Tinker(),
    NemoRl(),
    NemoGym(),
    AReal(),
    OpenRlhf(),
    Atropos(),
    Art(),
    Atif(),
)


def converter_named(name: str) -> Converter:
    """The converter behind a word; `prime-rl` is `prime_rl`. Raises: CallerError `trainer_unknown`."""
    for converter in CONVERTERS:
        if converter.name == name.replace("-", "_").lower():
            return converter
    raise CallerError(
        f"There is no trainer `{name}`",
        f"Choose one of {', '.join(converter.name for converter in CONVERTERS)}",
        code="trainer_unknown",
    )
