"""Signatures: opaque marks on an answer that clients bring back untouched, so that it can be known again.

A signature names the answer; it is derived from the answer's id, so that a retry is given the same one, and it
proves nothing: it only says where to look. One that was not made here names nothing.
"""

from __future__ import annotations

import base64
import binascii

_MARK = b"turnstile.1."
# As many bytes as base64 turns into whole characters.
_ENCODED_MARK = base64.b64encode(_MARK).decode()


def signature_of(answer_id: str) -> str:
    """The mark that stands for an answer.

    Args:
        answer_id: `conversation.answer_id` of it.
    """
    return base64.b64encode(_MARK + answer_id.encode()).decode()


def answer_named_by(signature: str) -> str:
    """The id of the answer that a signature stands for; empty if it was not made here."""
    if not signature.startswith(_ENCODED_MARK):
        return ""
    try:
        return binascii.a2b_base64(signature, strict_mode=True)[len(_MARK) :].decode()
    except ValueError:
        # No base64, or no text in it.
        return ""
