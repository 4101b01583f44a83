"""Between an answer's last id and what is new: nothing, a close that nobody sampled, or another stop token."""

from __future__ import annotations

from typing import assert_never

import msgspec

from turnstile.generation import Cut, HeldAnswer
from turnstile.templates.sentinel import Boundary, closing
from turnstile.templates.served import Closing, Mode, Refusal, Scene, Served, StopClass
from turnstile.tokens import NO_IDS, IdRun

END_OF_REASONING = "</think>"
"""Closes reasoning where the template has no field for it: the marker of all such templates in use (R1, QwQ)."""


class Join(msgspec.Struct, frozen=True):
    """How a held path goes over into what is new. Shapes: close_C [C]."""

    kept_T: int
    """How many ids of the held path stay: all, or all but a stop token that may not stand in history."""
    close_C: IdRun
    """Scaffold behind them."""
    skipped_A: int
    """How many of the new ids the held path ends with already: 1 if the sampled stop is the next header, else 0."""


def join_to(served: Served, scene: Scene, held: HeldAnswer, boundary: Boundary, mode: Mode) -> Join:
    """How the held path is closed in front of what is new.

    Source: docs/decisions/0004: synthetic close behind a cut, substitution of a stop that is not the template's own.
    """
    length = len(held.held_T)
    match held.cut:
        case Cut.NONE if held.held_T[-1] == boundary.terminator:
            return Join(length, NO_IDS, 1 if boundary.stop_class is StopClass.HEADER_STOP else 0)
        case Cut.NONE:
            return Join(length - 1, _encode_close(served, _ending(boundary, mode), boundary), 0)
        case Cut.CONTENT:
            return Join(length, _encode_close(served, _ending(boundary, mode), boundary), 0)
        case Cut.REASONING:
            return Join(length, _encode_close(served, _reasoning_ending(served, scene, held, boundary), boundary), 0)
        case Cut.CALL:
            # No invented JSON: the client holds the raw text, and so does the prompt.
            return Join(length, _encode_close(served, boundary.tail[boundary.anchor : boundary.end], boundary), 0)
        case _:
            assert_never(held.cut)


def _ending(boundary: Boundary, mode: Mode) -> str:
    # In ARGS mode the text in front of the terminator ends the call's JSON, which the model has done itself.
    start = boundary.anchor if mode is Mode.ARGS or boundary.stop_class is StopClass.HEADER_STOP else 0
    return boundary.tail[start : boundary.end]


def _reasoning_ending(served: Served, scene: Scene, held: HeldAnswer, boundary: Boundary) -> str:
    closed = closing(served, scene, held.message, Mode.REASONING)
    if isinstance(closed, Refusal):
        return END_OF_REASONING + _ending(boundary, Mode.CONTENT)
    return reasoning_close(closed, served.stop_ids | {boundary.terminator}, _ending(boundary, Mode.CONTENT))


def reasoning_close(closed: Closing, terminators: frozenset[int], ending: str) -> str:
    """What a template prints behind reasoning, up to its first terminator.

    Templates that write reasoning as a message of its own (gpt-oss, Muse) print an empty answer behind it, which
    the model has not given: the first terminator ends the reasoning.

    Args:
        closed: what stands behind reasoning without an answer.
        terminators: the tokens that end a message.
        ending: what ends a message, for templates that leave it out where there is no answer (Seed-OSS).
    """
    first = next((token for token in closed.added if token.token_id in terminators), None)
    return closed.text.rstrip() + ending if first is None else closed.text[: first.end]


def _encode_close(served: Served, close: str, boundary: Boundary) -> IdRun:
    if not close:
        return NO_IDS
    # Behind a token, as it will stand: some tokenizers put a space before a text's first word.
    front = served.tokenizer.token_bytes(boundary.terminator).decode("utf-8", "replace")
    anchored = served.tokenizer.encode(front + close)
    return anchored.slice(1) if anchored[0] == boundary.terminator else served.tokenizer.encode(close)
