"""Spans of requests, in memory and over a real wire."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from turnstile.errors import CallerError
from turnstile.exchange.timeline import Span, Stage, Timeline
from turnstile.server.call_report import CallReport, Prompted, Took
from turnstile.server.otel import ENDPOINTS, Otel, OtelTracing, Traced, tracing_for
from turnstile.server.tracing import UNTRACED

TRACED = Traced("m", "vllm", "1.2")
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PATH = "/v1/chat/completions"
REPORT = CallReport(
    rollout_id="r1",
    attempt=1,
    call_id="c2",
    dialect="openai.chat",
    path=PATH,
    status=200,
    outcome="answered",
    repeat="fresh",
    client_gone=False,
    prompted=Prompted("spliced", 120, 100, 7, {"logprob_missing": 1}, "stop", "[::1]:8000/base"),
    took=Took(2.0, added_s=0.0025),
)


@pytest.fixture
def exporter() -> Any:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    return InMemorySpanExporter()


@contextmanager
def tracing(exporter: Any) -> Iterator[OtelTracing]:
    made = OtelTracing(exporter, TRACED, clock_ns=lambda: 10**18)
    try:
        yield made
    finally:
        made._provider.force_flush()  # closing it would empty the exporter too


def times() -> Timeline:
    found = Timeline()
    found.spans += [
        Span(Stage.PLAN, 100, 200),
        Span(Stage.STORE, 200, 250),
        Span(Stage.ENGINE, 250, 900),
        Span(Stage.STORE, 900, 950),
    ]
    found.first_token_ns = 400
    return found


def test_a_request_is_a_span_with_its_stages_below_it(exporter: Any) -> None:
    with tracing(exporter) as made:
        made.begin(PATH, {}).end(REPORT, times())
    *stages, whole = exporter.get_finished_spans()
    assert [(span.name, span.kind.name) for span in (*stages, whole)] == [
        ("plan", "INTERNAL"),
        ("store", "INTERNAL"),
        ("chat m", "CLIENT"),
        ("store", "INTERNAL"),
        ("POST /v1/chat/completions", "SERVER"),
    ]
    assert {span.parent.span_id for span in stages} == {whole.context.span_id}
    assert whole.parent is None
    assert (whole.start_time, whole.end_time) == (10**18, 10**18 + 2 * 10**9)
    began = stages[0].start_time
    assert [(span.start_time - began, span.end_time - began) for span in stages] == [
        (0, 100), (100, 150), (150, 800), (800, 850),
    ]  # fmt: skip
    (first,) = stages[2].events
    assert (first.name, first.timestamp - began) == ("first_token", 300)


def test_a_span_says_what_the_conventions_have_names_for_and_no_content(exporter: Any) -> None:
    with tracing(exporter) as made:
        made.begin(PATH, {}).end(REPORT, times())
    spans = {span.name: dict(span.attributes) for span in exporter.get_finished_spans()}
    assert spans["POST /v1/chat/completions"] == {
        "http.request.method": "POST",
        "http.route": PATH,
        "http.response.status_code": 200,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "m",
        "gen_ai.conversation.id": "r1",
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.response.finish_reasons": ("stop",),
        "turnstile.attempt": 1,
        "turnstile.call": "c2",
        "turnstile.dialect": "openai.chat",
        "turnstile.history": "spliced",
        "turnstile.reused_ids": 100,
        "turnstile.repeat": "fresh",
        "turnstile.client_gone": False,
        "turnstile.added_ms": 2.5,
        "turnstile.masked.logprob_missing": 1,
    }
    assert spans["chat m"] == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "m",
        "server.address": "::1",
        "server.port": 8000,
    }


def test_a_clients_trace_is_continued_and_told_to_the_engine(exporter: Any) -> None:
    with tracing(exporter) as made:
        trace = made.begin(PATH, {"traceparent": PARENT, "tracestate": "a=b", "authorization": "planted-secret"})
        trace.end(REPORT, None)
    (whole,) = exporter.get_finished_spans()
    assert f"{whole.context.trace_id:032x}-{whole.parent.span_id:016x}" == "-".join(PARENT.split("-")[1:3])
    assert trace.headers == {
        "traceparent": f"00-{whole.context.trace_id:032x}-{whole.context.span_id:016x}-01",
        "tracestate": "a=b",
    }
    assert "planted-secret" not in whole.to_json()


@pytest.mark.parametrize(
    ("status", "outcome", "code"), [(503, "engine_unreachable", "ERROR"), (400, "invalid_request", "UNSET")]
)
def test_what_went_wrong_is_named_and_an_error_if_it_was_the_servers(
    exporter: Any, status: int, outcome: str, code: str
) -> None:
    with tracing(exporter) as made:
        made.begin(PATH, {}).end(msgspec.structs.replace(REPORT, status=status, outcome=outcome), None)
    (whole,) = exporter.get_finished_spans()
    assert (whole.attributes["error.type"], whole.status.status_code.name) == (outcome, code)


def test_a_trace_that_its_client_does_not_sample_is_passed_on_and_not_recorded(exporter: Any) -> None:
    with tracing(exporter) as made:
        trace = made.begin(PATH, {"traceparent": f"{PARENT[:-2]}00"})
        trace.end(REPORT, times())
    assert exporter.get_finished_spans() == ()
    assert trace.headers["traceparent"].endswith("-00")


def test_spans_arrive_by_otlp_where_the_environment_says(receiver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    made = tracing_for(Otel.AUTO, {ENDPOINTS[1]: receiver.url}, TRACED)
    made.begin(PATH, {}).end(REPORT, times())
    made.close()
    (path, body), *_ = receiver.received
    sent = ExportTraceServiceRequest.FromString(body)
    names = [span.name for resource in sent.resource_spans for scope in resource.scope_spans for span in scope.spans]
    assert (path, names) == ("/v1/traces", ["plan", "store", "chat m", "store", "POST /v1/chat/completions"])
    told = {each.key: each.value.string_value for each in sent.resource_spans[0].resource.attributes}
    assert (told["service.name"], told["service.version"]) == ("turnstile", "1.2")


@pytest.mark.parametrize(
    ("wanted", "environment"),
    [
        (Otel.AUTO, {}),
        (Otel.OFF, {ENDPOINTS[0]: "http://127.0.0.1:1"}),
        (Otel.ON, {"OTEL_SDK_DISABLED": "true"}),
        (Otel.AUTO, {ENDPOINTS[0]: ""}),
    ],
)
def test_nothing_is_traced_that_nobody_wants_traced(wanted: Otel, environment: dict[str, str]) -> None:
    assert tracing_for(wanted, environment, TRACED) is UNTRACED


def test_a_package_that_is_missing_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(CallerError, match=r"turnstile-rl\[otel\]") as refused:
        tracing_for(Otel.ON, {}, TRACED)
    assert refused.value.code == "otel_missing"
