"""The engine in which the model is played: llama.cpp's wire (`tests/fakes`), ids by a script, one fault a run."""

from __future__ import annotations

import enum
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from played import PlayedModel, Turn, pieces

from turnstile.templates.tokenizer import Tokenizer
from turnstile.tokens import IdRun

sys.path.insert(0, str(Path(__file__).parent.parent / "fakes"))
from llamacpp_fake import Fault, LlamaFake
from wired import Rows

CONTEXT = 1 << 18
STOPS = ("<|im_end|>", "<|endoftext|>")


class Trouble(enum.StrEnum):
    """What goes wrong at the engine, once, in a run."""

    NONE = "none"
    BUSY = "429"
    """Before the answer has begun."""
    FALLS_OVER = "500"
    """Before the answer has begun."""
    CUT = "cut"
    """The connection breaks in mid answer."""
    CLEAN_END = "clean end"
    """In mid answer, a body ends as it should, but what it holds is cut."""
    ERROR_EVENT = "error event"
    """In mid answer comes an error instead of more of it."""


@dataclass(frozen=True)
class Place:
    """Where a fault falls: which turn, and after how many requests for its answer."""

    turn: Turn
    requests_before: int


FAULTS = {
    Trouble.BUSY: Fault.BUSY_429,
    Trouble.FALLS_OVER: Fault.ERROR_500,
    Trouble.CUT: Fault.HALF_BODY,
    Trouble.CLEAN_END: Fault.NOT_JSON,
    Trouble.ERROR_EVENT: Fault.ERROR_BODY,
}
PLACES = {
    Trouble.BUSY: Place(Turn.TEST_FAILS, 0),
    Trouble.FALLS_OVER: Place(Turn.TEST_FAILS, 0),
    Trouble.CUT: Place(Turn.READ, 3),
    Trouble.CLEAN_END: Place(Turn.READ, 3),
    Trouble.ERROR_EVENT: Place(Turn.READ, 3),
}
"""In mid answer, 66 ids have come: all of the thinking and the text, and about one of two calls."""


class PlayedEngine(LlamaFake):
    """A llama.cpp server whose model is played."""

    def __init__(self, tokenizer: Tokenizer, model: PlayedModel, name: str, trouble: Trouble) -> None:
        special = frozenset(token.id for token in tokenizer.added if token.special)
        eos = frozenset(found for stop in STOPS if (found := tokenizer.id_of(stop)) is not None)
        super().__init__(Rows(tokenizer), special=special, eos=eos, model=name, context=CONTEXT, slots=4)
        self._tokenizer = tokenizer
        self._model = model
        self._trouble = trouble
        self.answer = self._played
        self.turns: Counter[Turn | None] = Counter()
        """How many new prompts each turn had."""
        self.answers: list[list[int]] = []
        """Of each new prompt, the whole answer."""
        self._requests_there = 0
        """How often the turn in which something goes wrong was asked for."""
        self.went_wrong = False

    def text(self, ids: list[int]) -> str:
        return self._tokenizer.decode(IdRun.of(ids))

    def _played(self, prompt: list[int]) -> list[int]:
        said = self.text(prompt)
        self.turns[self._model.turn(said)] += 1
        answer = [
            token for piece in pieces(self._model.answer(said)) for token in self._tokenizer.encode(piece).tolist()
        ]
        self.answers.append(answer)
        return answer

    async def _answered(self, request: web.Request, body: dict[str, Any], slot: int) -> web.StreamResponse:
        place = PLACES.get(self._trouble)
        if place is not None and not self.went_wrong and self._model.turn(self.text(body["prompt"])) is place.turn:
            # Under a grammar the whole answer is one request.
            if self._requests_there == place.requests_before or "grammar" in body:
                self.faults.append(FAULTS[self._trouble])
                self.went_wrong = True
            self._requests_there += 1
        return await super()._answered(request, body, slot)
