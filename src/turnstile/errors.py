"""The few errors that cross a room's border, each with its remedy.

Raise at the cause; one boundary (server or cli) turns the error into a reply, an exit code or a record.
To add one: name it for what was wrong, derive it from whose fault it is, and give it a remedy.

    TurnstileError
    ├── CallerError    the client's request cannot be served as it is   (4xx, exit 2)
    ├── EngineError    the engine failed, or said what cannot be true    (5xx, exit 1)
    └── StoreError     the journal cannot be read or written             (503, exit 1)
"""

from __future__ import annotations


class TurnstileError(Exception):
    """A problem that a person can act on.

    Shown to people as `problem. remedy.`; `code` is the word that programs and records rely on.
    """

    status = 500
    code = "internal_error"

    def __init__(self, problem: str, remedy: str, *, code: str = "", status: int = 0, param: str = "") -> None:
        """Describe what was wrong and what to do about it.

        Args:
            problem: what was wrong and where, one sentence without a final full stop.
            remedy: what to do, one sentence without a final full stop.
            code: machine-readable word; the class's own word if empty.
            status: HTTP status; the class's own if 0.
            param: the request field at fault, if one is.
        """
        super().__init__(" ".join(_sentence(text) for text in (problem, remedy) if text))
        self.problem = problem
        self.remedy = remedy
        self.code = code or type(self).code
        self.status = status or type(self).status
        self.param = param


class CallerError(TurnstileError):
    """The client asked for something that cannot be served as it was asked."""

    status = 400
    code = "invalid_request"


class EngineError(TurnstileError):
    """The engine is down, failed, or answered something that cannot be true."""

    status = 502
    code = "engine_error"


class EchoMismatch(EngineError):
    """The engine ran, or reported, other ids than the ones it was given."""

    code = "echo_mismatch"


class StoreError(TurnstileError):
    """The journal cannot be read or written."""

    status = 503
    code = "store_error"


def _sentence(text: str) -> str:
    """A text with one full stop at its end; words of other programs may bring their own."""
    return text if text.endswith((".", "!", "?")) else f"{text}."
