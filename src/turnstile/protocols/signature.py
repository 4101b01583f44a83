"""Signatures: opaque marks on an answer that clients bring back untouched, so that it can be known again.

A signature names the answer; it is derived from the answer's id, so that a retry is given the same one, and it
proves nothing: it only says where to look. One that was not made here names nothing.
"""

from __future__ import annotations

import base64
import binascii

_MARK = b"turnstile.1."


def signature_of(answer_id: str) -> str:
    """The mark that stands for an answer.

    Args:
        answer_id: `conversation.answer_id` of it.
    """
    return base64.b64encode(_MARK + answer_id.encode()).decode()


def answer_named_by(signature: str) -> str:
    """The id of the answer that a signature stands for; empty if it was not made here."""
    try:
        named = base64.b64decode(signature.encode("ascii"), validate=True)
        return named.removeprefix(_MARK).decode() if named.startswith(_MARK) else ""
    except (UnicodeError, binascii.Error):
        return ""
