"""The pages about the trajectory format are printed from its types."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
RELEASED = ROOT / "tests" / "trajectory" / "released" / "1.0.jsonl"
NAMES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}


@pytest.mark.parametrize(("what", "page"), [("fields", "trajectory-fields.md"), ("schema", "trajectory.schema.json")])
def test_the_page_is_as_the_types_are(what: str, page: str) -> None:
    command = [sys.executable, ROOT / "docs" / "print_trajectory.py", what]
    printed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    assert (REFERENCE / page).read_text(encoding="utf-8") == printed, "run docs/print_trajectory.py"


def faults(value: Any, schema: dict[str, Any], defs: dict[str, Any], at: str = "$") -> list[str]:
    """What a value breaks of the keywords that our schema uses."""
    if "$ref" in schema:
        return faults(value, defs[schema["$ref"].rsplit("/", 1)[1]], defs, at)
    if "anyOf" in schema:
        tried = [faults(value, each, defs, at) for each in schema["anyOf"]]
        return [] if [] in tried else tried[0]
    if "enum" in schema or "const" in schema:
        return [] if value in schema.get("enum", [schema.get("const")]) else [f"{at}: {value!r}"]
    wanted = schema.get("type", list({type(value)}))
    kinds = [wanted] if isinstance(wanted, str) else wanted
    if not any(value is None if kind == "null" else isinstance(value, NAMES.get(kind, object)) for kind in kinds):
        return [f"{at}: {type(value).__name__} is no {wanted}"]
    found: list[str] = []
    if isinstance(value, dict):
        found += [f"{at}.{name} is missing" for name in schema.get("required", []) if name not in value]
        known = schema.get("properties", {})
        for name, inner in value.items():
            found += faults(inner, known.get(name, schema.get("additionalProperties") or {}), defs, f"{at}.{name}")
    if isinstance(value, list):
        found += [fault for each in value for fault in faults(each, schema.get("items", {}), defs, at)]
    return found


def test_what_is_written_keeps_the_schema_and_a_damaged_copy_does_not() -> None:
    schema = json.loads((REFERENCE / "trajectory.schema.json").read_text())
    (line, *_) = RELEASED.read_text().splitlines()
    rollout = json.loads(line)
    assert faults(rollout, schema, schema["$defs"]) == []
    assert rollout.keys() == schema["$defs"]["Rollout"]["properties"].keys()
    del rollout["calls"][0]["usage"]["prompt_tokens"]
    rollout["sequences"][0]["token_ids"][0] = "x"
    assert faults(rollout, schema, schema["$defs"]) == [
        "$.calls.usage.prompt_tokens is missing",
        "$.sequences.token_ids: str is no integer",
    ]
