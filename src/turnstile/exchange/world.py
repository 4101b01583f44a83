"""What a call meets on its way; made once at start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

import msgspec

from turnstile.engines.base import Engine
from turnstile.exchange.draws import Overflow
from turnstile.exchange.holding import Gate, never_held
from turnstile.exchange.images import Gallery, ImageLimits
from turnstile.exchange.places import Places
from turnstile.exchange.policy_log import PolicyLog
from turnstile.generation import Prompt
from turnstile.history.forest import Forest
from turnstile.parsing.formats import AnswerFormat
from turnstile.protocols.quirks import Quirk
from turnstile.templates.accelerators import Accelerated
from turnstile.templates.certificate import Certificate
from turnstile.templates.served import Served


def _unnoticed(_forest: Forest, _call_id: str) -> None:
    """Nobody looks at answered calls."""


class World(msgspec.Struct, frozen=True):
    """The served model, its engine, and everything that is not a function of values."""

    served: Served
    answer_format: AnswerFormat
    engine: Engine
    now: Callable[[], datetime]
    mint_call_id: Callable[[], str]
    draw_seed: Callable[[int], int]
    """A random integer below its argument."""
    off_loop: Callable[[Callable[[], Prompt]], Awaitable[Prompt]]
    """Runs rendering and tokenizing away from the event loop."""
    certificate: Certificate | None = None
    """How exact splicing is for the served model; None: it was not checked."""
    answered: Callable[[Forest, str], None] = _unnoticed
    """Told of each call, by id, whose answer has just become durable; it must return at once."""
    quirks: tuple[Quirk, ...] = ()
    """The habits of harnesses that are acted on."""
    accelerated: Accelerated = Accelerated()
    """Which engine renders and which encodes for it."""
    overflow: Overflow = Overflow.AS_ENGINE
    """What becomes of a request for more tokens than the engine's window has room for."""
    policy: PolicyLog = msgspec.field(default_factory=PolicyLog)
    """Which weights each engine has, as announced."""
    gate: Gate = msgspec.field(default_factory=never_held)
    """Keeps calls back while weights are updated."""
    places: Places = msgspec.field(default_factory=Places)
    """How many calls run at once."""
    continuations: int = 0
    """How many times a completion that its engine gives up is taken up again."""
    gallery: Gallery | None = None
    """Where the bytes of images are kept; None: nowhere, and an image that is only named is run without them."""
    image_limits: ImageLimits = ImageLimits()
    """How many images, and how large, a conversation may show."""
