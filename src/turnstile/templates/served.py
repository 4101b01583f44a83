"""How one model is served: what planning has to know of its tokenizer and its chat template."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

import msgspec

from turnstile.conversation import Call, JsonText, Message, Role
from turnstile.generation import LiteralSpecials
from turnstile.reasons import RerenderReason
from turnstile.templates.proofs import Proofs
from turnstile.templates.render import GenerationPrompt, MessageForm, RenderRequest, Template
from turnstile.templates.second_opinion import SecondOpinion
from turnstile.templates.tokenizer import Tokenizer


class Mode(enum.StrEnum):
    """Which part of an assistant message a marker stands in for."""

    CONTENT = "content"
    ARGS = "args"
    """The arguments of the last tool call."""
    REASONING = "reasoning"


class StopClass(enum.StrEnum):
    """How a template ends an assistant message (docs/decisions/0004)."""

    CLOSED = "closed"
    """With a stop token, whatever follows."""
    HEADER_STOP = "header_stop"
    """With nothing; the header of the next message is the stop token."""
    ALIAS = "alias"
    """With a stop token if it is the last message, with another token in history."""
    NONE = "none"
    """No stop token was found: nothing can be spliced."""


class ImageFacts(msgspec.Struct, frozen=True):
    """How a template prints images."""

    placeholder: str
    """The text that stands for one, such as `<|image_pad|>`."""
    placeholder_id: int
    roles: frozenset[Role]
    """In whose messages it prints them."""


class TemplateFacts(msgspec.Struct, frozen=True):
    """What a few small renders tell about a template, for one set of stop tokens."""

    form: MessageForm
    """How it wants messages."""
    stop_class: StopClass
    drops_calls: bool
    """It does not print tool calls; the agent must carry them in text."""
    needs_history: frozenset[Mode]
    """Where what it prints behind an answer depends on the turns before: counters, one-time openers."""
    content_close: str
    """What it prints behind the text of an answer up to its end; empty for HEADER_STOP and NONE."""
    reasoning_close: str
    """What it prints behind reasoning up to the end of that block and its message."""
    reasoning_opener: str
    """With what a prompt ends in whose last block the model reasons; empty if the template has no such field."""
    drops_tools: bool = False
    """It does not print the tools of a request: the model never learns of them."""
    problem: str = ""
    """Why nothing can be spliced, as a sentence; empty if it can."""
    images: ImageFacts | None = None
    """None: it takes none."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a bridge cannot be had this way."""

    reason: RerenderReason
    detail: str


class Placed(msgspec.Struct, frozen=True):
    """An added token and where it stands in a text, characters [start, end)."""

    token_id: int
    start: int
    end: int


class Closing(msgspec.Struct, frozen=True):
    """What a template prints behind the body of a last assistant message."""

    text: str
    added: tuple[Placed, ...]
    """Its added tokens, as the tokenizer finds them."""


ClosingKey: TypeAlias = tuple[Mode, tuple[str, ...], tuple[JsonText, ...], JsonText, bool]
_CLOSINGS_KEPT = 1024
_KINDS_CHECKED = 64


@dataclasses.dataclass(frozen=True, eq=False)
class Served:
    """A model as it is served: all that planning needs. Safe to share between threads."""

    model: str
    """The name under which clients know it."""
    tokenizer: Tokenizer
    template: Template
    facts: TemplateFacts
    stop_ids: frozenset[int]
    """Where the engine ends an answer."""
    stop_ids_inferred: frozenset[int] = frozenset()
    """Those of them that nobody named; the template's own closings suggested them."""
    with_tools: Served | None = None
    """The model with the template that it has for requests with tools; None: the same one."""
    literal_specials: LiteralSpecials = LiteralSpecials.AS_ENGINE
    """What becomes of a client's text that spells a control token."""
    proofs: Proofs = dataclasses.field(default_factory=Proofs, repr=False)
    """What is known of the bridges of its template; grows in use."""
    second_opinion: SecondOpinion | None = dataclasses.field(default=None, repr=False)
    """Another package's bridge to ask; None: none is."""
    _closings: dict[ClosingKey, Closing | Refusal] = dataclasses.field(
        default_factory=dict[ClosingKey, Closing | Refusal], repr=False
    )
    _puts_back: dict[str, bool] = dataclasses.field(default_factory=dict[str, bool], repr=False)

    def for_tools(self, tools: tuple[JsonText, ...]) -> Served:
        """The model with the template for a request with these tool declarations."""
        return self.with_tools if tools and self.with_tools is not None else self

    def with_literals(self, literal_specials: LiteralSpecials) -> Served:
        """The same model under another setting; it shares everything that was found out about it."""
        tools = self.with_tools and self.with_tools.with_literals(literal_specials)
        return dataclasses.replace(self, literal_specials=literal_specials, with_tools=tools)

    def with_second_opinion(self, opinion: SecondOpinion) -> Served:
        """The same model with another package's bridge to ask; it shares everything that was found out about it."""
        tools = self.with_tools and self.with_tools.with_second_opinion(opinion)
        return dataclasses.replace(self, second_opinion=opinion, with_tools=tools)

    @property
    def added_ids(self) -> frozenset[int]:
        """Ids of all added tokens."""
        return self.tokenizer.added_ids

    @property
    def control_text(self) -> re.Pattern[str] | None:
        """Finds the text of a special token; None if the tokenizer has none."""
        return self.tokenizer.special_text

    def pattern_counts(self) -> dict[str, int]:
        """How many patterns of requests are known, with tools and without; see `Proofs.counts`."""
        tools = self.with_tools
        return dict(self.proofs.counts() + (tools.proofs.counts() if tools is not None else Counter()))

    def puts_back(self, kind: str, check: Callable[[], bool]) -> bool:
        """Whether stored ids may be put back into a rewritten history; checked once for each kind of request.

        False without a check once so many kinds were asked about that a client may be making them up.
        """
        known = self._puts_back.get(kind)
        if known is None:
            if len(self._puts_back) >= _KINDS_CHECKED:
                return False
            known = self._puts_back[kind] = check()
        return known

    def closing(self, key: ClosingKey, compute: Callable[[], Closing | Refusal]) -> Closing | Refusal:
        """A closing that does not depend on history, computed once."""
        known = self._closings.get(key)
        if known is None:
            # Two threads may compute the same closing; both results are equal, so the later write does no harm.
            if len(self._closings) >= _CLOSINGS_KEPT:
                self._closings.clear()
            known = self._closings[key] = compute()
        return known


class Scene(msgspec.Struct, frozen=True):
    """What a render needs besides turns: everything that stays the same from turn to turn."""

    system_M: tuple[Message, ...]
    """The system messages at the start."""
    tools: tuple[JsonText, ...]
    kwargs: JsonText
    now: datetime
    """What the template sees as the present."""

    @classmethod
    def of(cls, call: Call, messages: tuple[Message, ...], now: datetime) -> Scene:
        """The scene of a call whose conversation is `messages`."""
        return cls(leading_system(messages), tuple(tool.declaration for tool in call.tools), call.template_kwargs, now)


def leading_system(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The system messages before anybody else speaks."""
    count = next((at for at, message in enumerate(messages) if message.role is not Role.SYSTEM), len(messages))
    return messages[:count]


def render(served: Served, scene: Scene, messages: tuple[Message, ...], generation: GenerationPrompt) -> str:
    """The text of a conversation, the scene's system messages not added. Raises: TemplateFailed."""
    return served.template.render(
        RenderRequest(
            messages=messages,
            tools=scene.tools,
            kwargs=scene.kwargs,
            generation=generation,
            now=scene.now,
            form=served.facts.form,
        )
    )
