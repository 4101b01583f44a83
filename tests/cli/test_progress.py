"""What is shown while something takes long, and how wide."""

from __future__ import annotations

import pytest

from turnstile.cli.progress import PIPED_WIDTH, download_bar, wide_console
from turnstile.engines.smollm import Progress


def test_a_table_that_no_terminal_shows_is_wide() -> None:
    assert wide_console().width == PIPED_WIDTH


def test_a_download_is_shown_on_stderr_and_never_on_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    with download_bar() as show:
        for done in (0, 50, 100):
            show(Progress("download", done, 100))
        show(Progress("unpack", 1, 2))
    assert capfd.readouterr().out == ""


def test_nothing_is_shown_if_nothing_is_downloaded(capfd: pytest.CaptureFixture[str]) -> None:
    with download_bar():
        pass
    assert capfd.readouterr().out == ""
