"""Traces for OpenTelemetry: one span a request, one below it for each stage of its call, and never what was said.

Names and attributes are those of OpenTelemetry's conventions for HTTP and for generative AI where they have one. The
packages are an extra, `turnstile-rl[otel]`; nothing else here needs them, so they are imported only when asked for.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, final

import msgspec

from turnstile.errors import CallerError
from turnstile.exchange.timeline import Stage, Timeline
from turnstile.server.call_report import ANSWERED, CallReport
from turnstile.server.tracing import UNTRACED, Trace, Tracing

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.util.types import AttributeValue

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables of the environment that name where traces go, as OpenTelemetry has them."""
_OFF = "OTEL_SDK_DISABLED"
_CLOSING_MS = 5_000


class Otel(enum.StrEnum):
    """Whether traces are made."""

    AUTO = "auto"
    """If the environment names where they go."""
    ON = "on"
    """Yes; without a name they go to 127.0.0.1:4318, as OpenTelemetry has it."""
    OFF = "off"
    """No."""


class Traced(msgspec.Struct, frozen=True):
    """What all spans of a server say."""

    model: str
    engine: str
    """Its kind, such as `vllm`."""
    version: str
    """Turnstile's."""


def tracing_for(wanted: Otel, environment: Mapping[str, str], traced: Traced) -> Tracing:
    """Tracing as the settings and the environment want it, sent by OTLP over HTTP.

    Raises: CallerError `otel_missing` if it is wanted and its packages are not installed.
    """
    off = wanted is Otel.OFF or environment.get(_OFF, "").lower() == "true"
    if off or (wanted is Otel.AUTO and not any(map(environment.get, ENDPOINTS))):
        return UNTRACED
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as missing:
        raise CallerError(
            f"Traces are wanted, but a package for them is missing: {missing}",
            "Install it with `pip install 'turnstile-rl[otel]'`, or start with --otel off",
            code="otel_missing",
        ) from missing
    return OtelTracing(OTLPSpanExporter(), traced)


@final
class OtelTracing:
    """Spans of requests, sent in batches from a thread of OpenTelemetry's; what does not fit its queue is dropped."""

    def __init__(self, exporter: SpanExporter, traced: Traced, clock_ns: Callable[[], int] = time.time_ns) -> None:
        """Send to an exporter.

        Args:
            exporter: where spans go.
            traced: what all of them say.
            clock_ns: nanoseconds since 1970.
        """
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource.create({"service.name": "turnstile", "service.version": traced.version})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("turnstile", traced.version)
        self._traced = traced
        self._clock_ns = clock_ns

    def begin(self, path: str, headers: Mapping[str, str]) -> Trace:
        """A request has arrived; a `traceparent` of its client's is continued."""
        return _OtelTrace(self._tracer, self._traced, self._clock_ns, (path, headers))

    def close(self) -> None:
        """Send what waits, for five seconds at most."""
        self._provider.force_flush(_CLOSING_MS)
        self._provider.shutdown()


@final
class _OtelTrace:
    def __init__(
        self, tracer: Tracer, traced: Traced, clock_ns: Callable[[], int], request: tuple[str, Mapping[str, str]]
    ) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        path, headers = request
        self._tracer = tracer
        self._traced = traced
        self._offset_ns = clock_ns() - time.perf_counter_ns()
        self._began_ns = clock_ns()
        propagator = TraceContextTextMapPropagator()
        self._span = tracer.start_span(
            f"POST {path}",
            context=propagator.extract({name: headers[name] for name in propagator.fields if name in headers}),
            kind=trace.SpanKind.SERVER,
            start_time=self._began_ns,
            attributes={"http.request.method": "POST", "http.route": path},
        )
        self._context = trace.set_span_in_context(self._span)
        self._headers: dict[str, str] = {}
        propagator.inject(self._headers, context=self._context)

    @property
    def headers(self) -> Mapping[str, str]:
        """`traceparent` and `tracestate` of this request's span."""
        return self._headers

    def end(self, report: CallReport, times: Timeline | None) -> None:
        """Say all that is known, and add the stages as spans of their own."""
        if not self._span.is_recording():
            return
        self._span.set_attributes(_said_of(report, self._traced))
        if report.outcome != ANSWERED:
            _failed(self._span, report)
        if times is not None:
            self._add_stages(report, times)
        self._span.end(self._began_ns + round(report.took.total_s * 1e9))

    def _add_stages(self, report: CallReport, times: Timeline) -> None:
        from opentelemetry.trace import SpanKind

        for part in times.spans:
            engine = part.stage is Stage.ENGINE
            span = self._tracer.start_span(
                f"chat {self._traced.model}" if engine else part.stage.value,
                context=self._context,
                kind=SpanKind.CLIENT if engine else SpanKind.INTERNAL,
                start_time=part.began_ns + self._offset_ns,
                attributes=_said_to(report, self._traced) if engine else None,
            )
            if engine and times.first_token_ns is not None and part.began_ns <= times.first_token_ns <= part.ended_ns:
                span.add_event("first_token", timestamp=times.first_token_ns + self._offset_ns)
            span.end(part.ended_ns + self._offset_ns)


def _failed(span: Span, report: CallReport) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", report.outcome)
    if report.status >= 500:
        # What a client did wrong is no error of the server's, by the conventions for HTTP.
        span.set_status(StatusCode.ERROR, report.outcome)


def _said_of(report: CallReport, traced: Traced) -> dict[str, AttributeValue]:
    call = report.prompted
    said: dict[str, AttributeValue] = {
        **_model(traced),
        "gen_ai.conversation.id": report.rollout_id,
        "gen_ai.usage.input_tokens": call.prompt_ids,
        "gen_ai.usage.output_tokens": call.sampled_ids,
        "turnstile.attempt": report.attempt,
        "turnstile.call": report.call_id,
        "turnstile.dialect": report.dialect,
        "turnstile.history": call.history,
        "turnstile.reused_ids": call.reused_ids,
        "turnstile.repeat": report.repeat,
        "turnstile.client_gone": report.client_gone,
    }
    if report.status:
        said["http.response.status_code"] = report.status
    if call.finish:
        said["gen_ai.response.finish_reasons"] = (call.finish,)
    if report.took.added_s is not None:
        said["turnstile.added_ms"] = round(1e3 * report.took.added_s, 3)
    for reason, count in call.masked.items():
        said[f"turnstile.masked.{reason}"] = count
    return said


def _said_to(report: CallReport, traced: Traced) -> dict[str, AttributeValue]:
    host, _, port = report.prompted.engine.partition("/")[0].rpartition(":")
    address: dict[str, AttributeValue] = {"server.address": host.strip("[]")} if host else {}
    if port.isdecimal():
        address["server.port"] = int(port)
    return {**_model(traced), **address}


def _model(traced: Traced) -> dict[str, AttributeValue]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": traced.engine,
        "gen_ai.request.model": traced.model,
    }
