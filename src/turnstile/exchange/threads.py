"""What a request names instead of repeating it, put in from what is held (OpenAI Responses).

A request may name the response that it continues, and items of earlier responses. Behind this step it is a request
that says everything itself, so that matching, retries and records know no other kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec

from turnstile.conversation import AnswerPiece, Call, Message, PieceKind, Storage, Thread, answer_id
from turnstile.errors import CallerError
from turnstile.generation import NodeRef
from turnstile.history.forest import Forest
from turnstile.history.node import Node


def told_in_full(forest: Forest, call: Call) -> Call:
    """The call with all that it names written out.

    What a response inherits is the history and the answer of the one before it, without the `instructions` of that
    one. Images of an inherited history keep their hashes; their bytes are not in `media`.

    Raises: CallerError `previous_response_not_found` or `item_not_found` for an answer that this attempt does not
        have, or was told not to store.
    """
    thread = call.thread
    if not thread.previous and not thread.pieces:
        return call
    messages = _with_pieces(forest, call.messages, thread.pieces)
    own_M = thread.instructions_M
    inherited = _inherited(forest, thread.previous) if thread.previous else ()
    return msgspec.structs.replace(
        call,
        messages=(*messages[:own_M], *inherited, *messages[own_M:]),
        thread=Thread(instructions_M=own_M, storage=thread.storage),
    )


def _inherited(forest: Forest, named: str) -> tuple[Message, ...]:
    node = _held(forest, named)
    if node is None:
        raise CallerError(
            f"There is no stored response `{_shown(named)}` in this rollout",
            "Send the whole conversation as `input`, or name a response that was made with `store` not false",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    return node.messages_M[node.started.instructions_M :]


def _with_pieces(forest: Forest, messages: Sequence[Message], pieces: Sequence[AnswerPiece]) -> list[Message]:
    whole = list(messages)
    for piece in pieces:
        node = _held(forest, piece.answer_id)
        added = None if node is None else _with_piece(whole[piece.index_M], node.message, piece)
        if added is None:
            raise CallerError(
                f"`input` refers to an item of answer `{_shown(piece.answer_id)}`, which is not stored in this rollout",
                "Send the item itself",
                code="item_not_found",
                param="input",
                status=404,
            )
        whole[piece.index_M] = added
    return whole


def _with_piece(message: Message, answer: Message, piece: AnswerPiece) -> Message | None:
    """The message with one more piece of an answer; None if the answer has no such call.

    An answer's text and its reasoning are held in one: whichever of its items of a kind is named first stands for all.
    """
    match piece.kind:
        case PieceKind.REASONING:
            said = "" if piece.at else answer.reasoning
            return msgspec.structs.replace(message, reasoning=message.reasoning + said)
        case PieceKind.TEXT:
            return message if piece.at else msgspec.structs.replace(message, parts=(*message.parts, *answer.parts))
        case PieceKind.CALL:
            if piece.at >= len(answer.calls):
                return None
            calls = (*message.calls[: piece.place], answer.calls[piece.at], *message.calls[piece.place :])
            return msgspec.structs.replace(message, calls=calls)
        case _:
            assert_never(piece.kind)


def _held(forest: Forest, named: str) -> Node | None:
    """The answer of that id, if this attempt has it and was not told to keep it to itself."""
    assert forest.opened is not None
    call_id = named.rpartition("-")[2]
    state = forest.calls.get(call_id)
    if state is None or state.committed is None or state.started.storage is Storage.PRIVATE:
        return None
    if named != answer_id(forest.opened.rollout_id, forest.opened.attempt, call_id):
        return None
    return forest.node(NodeRef(call_id))


def _shown(named: str) -> str:
    return named[:80]
