"""`/v1/chat/completions/derender`: vLLM's parsers on their own, for ids that came from a door without one.

The route keeps nothing between requests: its state goes out and comes back with each, and it reads everything again.
So ids are gathered, more the longer the answer is, and the cost stays in proportion to the answer's length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import msgspec

from turnstile.conversation import ReplyDelta
from turnstile.engines.vllm_chat import Reading, Said, reading, said
from turnstile.engines.vllm_shapes import read
from turnstile.engines.wire import Wire
from turnstile.generation import Prompt

PATH = "/v1/chat/completions/derender"
_FIRST = 8
"""Ids that are gathered at least."""
_SHARE = 8
"""Gathered are the ids that came, divided by this."""


class _Choice(msgspec.Struct, frozen=True):
    token_ids: tuple[int, ...]
    finish_reason: str | None
    index: int = 0


class _GenerateChunk(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...]
    request_id: str = "turnstile"


class _Request(msgspec.Struct, frozen=True):
    model: str
    generate_chunk: _GenerateChunk
    stream_state: msgspec.Raw
    chat_request: Reading
    stream: bool = True


class _ChatChoice(msgspec.Struct, frozen=True):
    delta: Said = Said()


class _ChatChunk(msgspec.Struct, frozen=True):
    choices: tuple[_ChatChoice, ...] = ()


class _Answer(msgspec.Struct, frozen=True):
    chunk: _ChatChunk
    stream_state: msgspec.Raw


@final
class Derender:
    """Reads one answer."""

    def __init__(self, wire: Wire, model: str, prompt: Prompt, written: bytes) -> None:
        """Begin; `written` is the prompt's ids as the inside of a JSON array."""
        self._wire = wire
        self._model = model
        self._written = written
        self._reading = reading(prompt)
        self._state = msgspec.Raw(b"null")
        self._gathered: list[int] = []
        self._count = 0

    async def read(self, ids: Sequence[int], finish: str) -> ReplyDelta | None:
        """What is read now; None if nothing new. All that was gathered is read when `finish` is said.

        Raises: EngineError.
        """
        self._gathered += ids
        self._count += len(ids)
        if not finish and len(self._gathered) < max(_FIRST, self._count // _SHARE):
            return None
        chunk = _GenerateChunk((_Choice(tuple(self._gathered), finish or None),))
        self._gathered = []
        rest = _Request(self._model, chunk, self._state, self._reading)
        body = b'{"prompt_token_ids":[' + self._written + b"]," + msgspec.json.encode(rest)[1:]
        answer = read(await self._wire.post(PATH, body), _Answer)
        self._state = answer.stream_state
        told = [each for choice in answer.chunk.choices if (each := said(choice.delta)) is not None]
        return told[0] if told else None
