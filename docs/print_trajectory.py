"""Prints what is known of the trajectory format from its types: run it after a change there.

python docs/print_trajectory.py fields > docs/reference/trajectory-fields.md
python docs/print_trajectory.py schema > docs/reference/trajectory.schema.json
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from typing import Any

import msgspec

from turnstile.tokens import IdRun, LogprobRun
from turnstile.trajectory import call_shapes, shapes
from turnstile.trajectory.check_fields import ARRAY_AXES, MEDIA_KINDS

INTRO = """# Fields of the trajectory format

Printed from `turnstile.trajectory.shapes`. [The format](trajectory.md) says what they are for. A field that is not
required may be absent or null; absence means null, or the default that stands in the table. The same as JSON Schema:
[trajectory.schema.json](trajectory.schema.json).

T counts the tokens of a sequence, S its sampled ones. A time is RFC 3339 in UTC with microseconds and `Z`; a sha256 is
lower-case hex.
"""
TITLES = {
    "Rollout": "Rollout",
    "HeadInfo": "Head",
    "SamplingInfo": "Sampling settings",
    "CallInfo": "Call",
    "UsageInfo": "Usage",
    "Sequence": "Sequence",
    "SequenceSegment": "Segment",
    "MediaEntry": "Media entry",
    "ArrayEntry": "Array entry",
    "TokenCounts": "Token counts",
    "ErrorInfo": "Error",
}
WORDS = {
    ("Rollout", "status"): shapes.STATUSES,
    ("CallInfo", "history"): shapes.HISTORIES,
    ("CallInfo", "kind"): shapes.CALL_KINDS,
    ("CallInfo", "finish"): shapes.FINISHES,
    ("CallInfo", "logprobs_mode"): shapes.LOGPROBS_MODES,
    ("SequenceSegment", "kind"): shapes.SEGMENT_KINDS,
    ("MediaEntry", "kind"): MEDIA_KINDS,
    ("ArrayEntry", "axis"): ARRAY_AXES,
}
PLAIN = {
    "Count": "int from 0",
    "Whole": "int",
    "Time": "time",
    "JsonObject": "object",
    "IdRun": "int32[T]",
    "LogprobRun": "(float32 or null)[S]",
    "Float32Run": "float32[S]",
    "None": "null",
}
DOUBLES = {"reward", "rewards", "metrics"}
NUMBERS = {"type": "array", "items": {"type": "number"}}
RUNS: dict[object, dict[str, Any]] = {
    IdRun: {"type": "array", "items": {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}},
    LogprobRun: {"type": "array", "items": {"type": ["number", "null"]}},
    shapes.Float32Run: NUMBERS,
    object: {"description": "any JSON value"},
}


def _classes() -> dict[str, ast.ClassDef]:
    found: dict[str, ast.ClassDef] = {}
    for module in (call_shapes, shapes):
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef) and node.name in TITLES:
                found[node.name] = node
    return found


def fields_page() -> str:
    """The page as Markdown."""
    classes = _classes()
    lines = [INTRO]
    for name, title in TITLES.items():
        kind = classes[name]
        lines += [
            f"## {title}",
            "",
            (ast.get_docstring(kind) or "").replace("\n\n", "\n").replace("None =", "null ="),
            "",
        ]
        lines += ["| field | type | | meaning |", "| --- | --- | --- | --- |"]
        lines += [_row(field, meaning) for field, meaning in _fields(kind)]
        lines.append("")
    return "\n".join(lines)


def _fields(kind: ast.ClassDef) -> list[tuple[ast.AnnAssign, str]]:
    found: list[tuple[ast.AnnAssign, str]] = []
    for at, statement in enumerate(kind.body):
        if isinstance(statement, ast.AnnAssign):
            behind = kind.body[at + 1] if at + 1 < len(kind.body) else None
            told = isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant)
            found.append((statement, str(behind.value.value) if told else ""))
    return found


def _row(field: ast.AnnAssign, meaning: str) -> str:
    name = ast.unparse(field.target)
    default = "required" if field.value is None else _default(field.value)
    said = meaning.replace("None =", "null =")
    return f"| `{name}` | {_type(field.annotation, name)} | {default} | {said} |"


def _default(value: ast.expr) -> str:
    match value:
        case ast.Constant(value=None):
            return ""
        case ast.Constant(value=fixed):
            return f"`{json.dumps(fixed)}`"
        case _:
            return "required"


def _type(annotation: ast.expr, name: str) -> str:
    match annotation:
        case ast.BinOp(left=left, right=right):
            return f"{_type(left, name)} or {_type(right, name)}"
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[inner, *_])):
            return f"list of {_type(inner, name)}"
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[_, inner])):
            return f"names to {_type(inner, name)}"
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[inner, *_])):
            return _type(inner, name)
        case ast.Name(id="float"):
            return "float64" if name in DOUBLES else "float32"
        case _:
            word = ast.unparse(annotation)
            title = TITLES.get(word)
            return PLAIN.get(word, word) if title is None else f"[{title}](#{title.lower().replace(' ', '-')})"


def schema() -> dict[str, Any]:
    """The format as JSON Schema 2020-12. Unknown fields and words are allowed, as readers take them."""
    made = msgspec.json.schema(shapes.Rollout, schema_hook=RUNS.__getitem__)
    meanings = {
        name: {ast.unparse(field.target): meaning for field, meaning in _fields(kind)}
        for name, kind in _classes().items()
    }
    for name, part in made["$defs"].items():
        part["title"] = TITLES[name]
        del part["properties"]["unknown"]
        for field, described in part["properties"].items():
            _describe(described, meanings[name][field])
            if words := WORDS.get((name, field)):
                # A later minor version may bring a new word, which is no fault.
                described["anyOf"] = [{"enum": sorted(words)}, {"type": described.pop("type")}]
    rollout = made["$defs"]["Rollout"]
    rollout["required"] = ["format", "format_version", *rollout["required"]]
    rollout["properties"]["format"] = {"const": shapes.FORMAT}
    rollout["properties"]["format_version"] = {"type": "string", "pattern": r"^1\.[0-9]+$"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def _describe(described: dict[str, Any], meaning: str) -> None:
    if meaning:
        plain = re.sub(r"\[(\w+)\]\([\w.]+\)", r"\1", meaning).replace("`", "")
        described["description"] = plain.replace("None =", "null =")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["schema"]:
            sys.stdout.write(json.dumps(schema(), indent=1) + "\n")
        case _:
            sys.stdout.write(fields_page())
