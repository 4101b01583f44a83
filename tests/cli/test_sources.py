"""Where a command's trajectories come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile.cli.sources import Selection, open_source
from turnstile.errors import StoreError
from turnstile.trajectory.rules import Rules
from turnstile.trajectory.side_files import SideBytesLost, SideKind


def test_a_store_knows_how_many_there_will_be_and_a_file_does_not(
    run: Callable[..., Any], store: Path, tmp_path: Path
) -> None:
    run("export", store, "-o", tmp_path / "a.jsonl")
    for path, total in ((store, 2), (tmp_path / "a.jsonl", None), (tmp_path, None)):
        with open_source(path, Selection(), Rules()) as source:
            assert (source.total, len(list(source.rollouts())), source.lost) == (total, 2, [])


def test_bytes_that_a_source_does_not_have_are_lost(run: Callable[..., Any], store: Path, tmp_path: Path) -> None:
    run("export", store, "-o", tmp_path / "a.jsonl")
    for path in (store, tmp_path / "a.jsonl"):
        with open_source(path, Selection(), Rules()) as source, pytest.raises(SideBytesLost):
            source.side_bytes(SideKind.MEDIA, "0" * 64)


def test_a_folder_with_neither_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError), open_source(tmp_path, Selection(), Rules()):
        pass
