"""Reading what a client sent, without keeping everybody else waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LARGE_BYTES = 256 * 1024
"""Of a body. Reading a shorter one takes about as long as it takes to ask a thread for it."""


async def apart(body: bytes, work: Callable[[], T]) -> T:
    """The result of work on a body: done at once, or in a thread if the body is large.

    JSON is read under Python's lock, so others still wait for each single step of it; no longer for all of them.
    """
    if len(body) < LARGE_BYTES:
        return work()
    return await asyncio.to_thread(work)
