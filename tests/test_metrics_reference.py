"""The reference of metrics, the dashboard and the alerts name what a running server has."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"\| `(\w+)` \| (counter|gauge|histogram) \| ([`\w, ]*) \| (.+) \|")
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
NAME = re.compile(r"\b(?:turnstile|process)_[a-z_]+\b")


def rows() -> dict[str, tuple[str, str, frozenset[str]]]:
    """Of each metric in the reference: its kind, what it says, and its labels."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    return {
        name: (kind, help_text, frozenset(re.findall(r"\w+", labels)))
        for name, kind, labels, help_text in ROW.findall(page)
    }


def series() -> set[str]:
    """Every name that an expression may use."""
    return {
        name.removesuffix("_total") + suffix if kind == "counter" else name + suffix
        for name, (kind, _, _) in rows().items()
        for suffix in SUFFIXES[kind]
    }


@pytest.fixture
def families(wired: Callable[..., Any]) -> list[Any]:
    room = wired()
    room.script("A<|im_end|>")
    agent = room.agent()
    agent.say("Hi")
    agent.handle.finish()
    text = room.client.get("/metrics").decode()
    return [each for each in text_string_to_metric_families(text) if not each.name.endswith("_created")]


def test_every_metric_of_a_running_server_has_a_row_that_says_the_same(families: list[Any]) -> None:
    found = {
        each.name + ("_total" if each.type == "counter" else ""): (each.type, each.documentation) for each in families
    }
    assert {name: (kind, help_text) for name, (kind, help_text, _) in rows().items()} == found


def test_every_label_of_a_running_server_is_in_its_row_and_explained(families: list[Any]) -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`[\w`, ]+) \| [^|]+\|$", page, re.MULTILINE)
    explained = {name for cell in cells for name in re.findall(r"\w+", cell)}
    labels = {
        (each.name + ("_total" if each.type == "counter" else ""), label)
        for each in families
        for sample in each.samples
        for label in sample.labels
        if label != "le"
    }
    assert {(name, label) for name, label in labels if label not in rows()[name][2]} == set()
    assert {label for _, _, own in rows().values() for label in own} - explained == set()


def test_no_label_of_a_running_server_names_a_rollout(families: list[Any]) -> None:
    values = {value for each in families for sample in each.samples for value in sample.labels.values()}
    assert [value for value in values if value.startswith("ro-")] == []


def test_the_dashboard_and_the_alerts_use_only_metrics_that_there_are() -> None:
    dashboard = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    alerts = re.findall(
        r"^\s+expr: (.+)$", (ROOT / "deploy" / "prometheus-alerts.yaml").read_text("utf-8"), re.MULTILINE
    )
    assert len(queries) > 15
    assert len(alerts) > 8
    used = {name for expression in [*queries, *alerts] for name in NAME.findall(expression)}
    assert used - series() == set()
