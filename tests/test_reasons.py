"""The closed list of reasons."""

from __future__ import annotations

import enum
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from turnstile import reasons

ROOT = Path(__file__).parent.parent
KINDS = [
    kind
    for _, kind in inspect.getmembers(reasons, inspect.isclass)
    if issubclass(kind, enum.StrEnum) and kind is not enum.StrEnum
]


def test_the_reference_page_is_what_the_module_prints() -> None:
    printed = subprocess.run([sys.executable, ROOT / "docs" / "print_reasons.py"], capture_output=True, check=True)
    assert (ROOT / "docs" / "reference" / "reasons.md").read_bytes() == printed.stdout


def test_every_word_is_explained() -> None:
    page = (ROOT / "docs" / "reference" / "reasons.md").read_text(encoding="utf-8")
    assert [line for line in page.splitlines() if line.startswith("| `") and line.endswith("|  |")] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_two_reasons_of_a_kind_share_a_word(kind: type[enum.StrEnum]) -> None:
    assert len({reason.value for reason in kind}) == len(kind.__members__)
