"""What an agent is told of a failure that is not its own: enough to act on, and nothing of what stands behind.

An agent runs code that a model wrote. Where keys are asked for, it must not learn where engines are (it could go
past Turnstile), what paths a machine has, or what another program says of itself; the journal keeps all of that for
whoever runs rollouts. What is wrong with its own request it is told in full.
"""

from __future__ import annotations

from typing import assert_never

from turnstile.errors import CallerError, EngineError, StoreError, TurnstileError

_ABOUT_THE_REQUEST = frozenset((400, 413, 422))
"""With these an engine says what is wrong with what it was asked."""
_OF_ENGINES = {
    "engine_unreachable": "The engine cannot be reached",
    "engine_refused": "The engine refused the request",
    "engine_key_refused": "The engine refused Turnstile's own key, not that of this request",
    "engine_broken": "The engine's answer cannot be used",
    "engine_aborted": "The engine gave the call up before its answer was whole",
    "echo_mismatch": "The engine ran other ids than it was given",
    "policy_hold_expired": "Calls were held for an update of the engine's weights, and the deadline passed",
}


def in_full(error: TurnstileError) -> TurnstileError:
    """The error as it is: for whoever may know everything."""
    return error


def sealed(error: TurnstileError) -> TurnstileError:
    """The error as an agent may know it; code, status and field stay.

    Args:
        error: as the journal has it.
    """
    match error:
        case CallerError():
            return error
        case EngineError():
            if error.code == "engine_refused" and error.status in _ABOUT_THE_REQUEST:
                return error
            problem = _OF_ENGINES.get(error.code, "The engine failed")
        case StoreError():
            problem = "Turnstile cannot keep or read records at the moment"
        case TurnstileError():
            # Raised by nothing but Turnstile itself, whose words name no place.
            return error
        case _:
            assert_never(error)
    remedy = "Send it again later; what exactly is wrong stands in the journal and the log of whoever runs Turnstile"
    return type(error)(problem, remedy, code=error.code, status=error.status, param=error.param)
