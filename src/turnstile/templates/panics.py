"""Panics of accelerators: what their Rust code raises where it gives up, which is no Exception.

A panic that nobody catches would end the task of a request without an answer, or a thread. Caught, it is a failure like
any other, behind which the reference decides. What has panicked once is not asked again: nobody knows what state it is
in, and ids that might be wrong are worse than ids that take longer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar, final

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger("turnstile.templates")


class Panicked(ValueError):
    """An accelerator panicked, now or before."""


@final
class Guarded(Generic[T, R]):
    """A function of an accelerator; safe to share between threads."""

    def __init__(self, package: str, function: Callable[[T], R]) -> None:
        """Guard it.

        Args:
            package: whose it is, for the log.
            function: it.
        """
        self._package = package
        self._function = function
        self._has_panicked = False

    def __call__(self, value: T) -> R:
        """What the function says. Raises: Panicked if it panics or has panicked; else whatever it raises."""
        if self._has_panicked:
            raise Panicked(f"{self._package} has panicked before")
        try:
            return self._function(value)
        except BaseException as failure:
            if not is_panic(failure):
                raise
            if not self._has_panicked:
                self._has_panicked = True
                log.warning("%s panicked and is not used any more, the reference is: %.200s", self._package, failure)
            raise Panicked(f"{self._package} panicked: {failure}") from failure


def is_panic(failure: BaseException) -> bool:
    """Whether it is a Rust panic: PyO3 gives each package a class of its own, all of one name."""
    kind = type(failure)
    return (kind.__module__, kind.__name__) == ("pyo3_runtime", "PanicException")
