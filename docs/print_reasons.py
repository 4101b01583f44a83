"""Prints docs/reference/reasons.md from `turnstile.reasons`: run it after a change there.

python docs/print_reasons.py > docs/reference/reasons.md
"""

from __future__ import annotations

import ast
import inspect
import sys

from turnstile import reasons

INTRO = """# Reasons

Printed from `turnstile.reasons`. Every fork, drop, mask, retry and fallback that Turnstile records carries one of
these words, in the journal, in `x-turnstile-history`, in the export and in the reports. A word never changes meaning.
"""


def page() -> str:
    """The page as Markdown."""
    lines = [INTRO]
    for kind in ast.parse(inspect.getsource(reasons)).body:
        if not isinstance(kind, ast.ClassDef):
            continue
        lines += [f"## {kind.name}", "", ast.get_docstring(kind) or "", "", "| word | meaning |", "| --- | --- |"]
        for at, statement in enumerate(kind.body):
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
                behind = kind.body[at + 1] if at + 1 < len(kind.body) else None
                told = isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant)
                meaning = " ".join(str(behind.value.value).split()) if told else ""
                lines.append(f"| `{statement.value.value}` | {meaning} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(page())
