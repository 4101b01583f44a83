"""Server-sent events, as far as the dialects need them.

Source: WHATWG HTML, section "Server-sent events": `data:` lines, a blank line ends an event, a line that
starts with a colon is a comment.
"""

from __future__ import annotations

MEDIA_TYPE = "text/event-stream; charset=utf-8"

# Some clients split the stream as text (`str.splitlines`), which also breaks at these three characters.
# JSON leaves them as they are, and inside a JSON string an escape means the same.
_TEXT_LINE_BREAKS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))


def json_event(payload: bytes, name: str = "") -> bytes:
    """One event that carries a JSON text.

    Args:
        payload: UTF-8 JSON on one line, as encoders without indentation write it.
        name: the event's type; left out if empty.
    """
    if not payload.isascii():
        for character, escape in _TEXT_LINE_BREAKS:
            payload = payload.replace(character, escape)
    event = b"data: " + payload + b"\n\n"
    return f"event: {name}\n".encode() + event if name else event


def word_event(word: str) -> bytes:
    """One event that carries a bare word, such as `[DONE]`."""
    return f"data: {word}\n\n".encode()


def comment(text: str) -> bytes:
    """A line that clients skip; it keeps the connection from looking idle."""
    return f": {text}\n\n".encode()
