"""The seam to distributed tracing: a span for each request of an agent, if anybody wants one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, final

from turnstile.exchange.timeline import Timeline
from turnstile.server.call_report import CallReport


class Trace(Protocol):
    """The span of one request."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What tells an engine that its work belongs to this request; empty if nothing does."""
        ...

    def end(self, report: CallReport, times: Timeline | None) -> None:
        """The request is over, and its call too.

        Args:
            report: what came of it.
            times: the stages of its call; None: it began none of its own.
        """
        ...


class Tracing(Protocol):
    """Begins spans. Everything must return at once."""

    def begin(self, path: str, headers: Mapping[str, str]) -> Trace:
        """A request has arrived.

        Args:
            path: as the dialect's table has it.
            headers: the request's, names in lower case; a span of the client's that stands there is the parent.
        """
        ...

    def close(self) -> None:
        """Send what waits; no span begins any more. May take seconds."""
        ...


@final
class Untraced:
    """No tracing, and no trace of a request."""

    @property
    def headers(self) -> Mapping[str, str]:
        """None."""
        return {}

    def begin(self, path: str, headers: Mapping[str, str]) -> Trace:
        """Begin nothing."""
        return self

    def end(self, report: CallReport, times: Timeline | None) -> None:
        """End nothing."""

    def close(self) -> None:
        """Send nothing."""


UNTRACED = Untraced()
