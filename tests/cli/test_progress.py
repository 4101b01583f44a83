"""What is shown while something takes long, and how wide."""

from __future__ import annotations

import pytest

from turnstile.cli.progress import PIPED_WIDTH, counted, download_bar, wide_console
from turnstile.engines.smollm import Progress


def test_a_table_that_no_terminal_shows_is_wide() -> None:
    assert wide_console().width == PIPED_WIDTH


def test_a_download_is_shown_on_stderr_and_never_on_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    with download_bar() as show:
        for done in (0, 50, 100):
            show(Progress("download", done, 100))
        show(Progress("unpack", 1, 2))
    # Nobody looks here: not even the empty line that a bar leaves where stderr is no terminal.
    assert capfd.readouterr() == ("", "")


def test_nothing_is_shown_if_nothing_is_downloaded(capfd: pytest.CaptureFixture[str]) -> None:
    with download_bar():
        pass
    assert capfd.readouterr() == ("", "")


def test_counts_are_singular_for_one() -> None:
    assert [counted(number, "error") for number in (0, 1, 2)] == ["0 errors", "1 error", "2 errors"]
