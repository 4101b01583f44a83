"""One file is a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from loop.settings import read_settings

TEXT = Path(__file__).parents[4] / "examples" / "rl" / "text" / "text.toml"


def test_a_setting_of_the_command_line_counts_more_than_the_files() -> None:
    settings = read_settings(TEXT, {"train.steps": "3", "model.folder": "/models/one", "model.arguments": '["20"]'})
    assert (settings.train.steps, settings.model.folder, settings.model.arguments) == (3, "/models/one", ("20",))


def test_the_files_own_settings_are_read() -> None:
    settings = read_settings(TEXT, {})
    assert (settings.world, settings.engine.kind, settings.evaluate.tasks) == ("text.world", "token_server", 64)


def test_a_step_has_whole_batches() -> None:
    train = read_settings(TEXT, {}).train
    assert train.prompts * train.generations % train.rows_at_once == 0


@pytest.mark.parametrize("place", ["train.stepz", "trian.steps"])
def test_a_name_that_is_not_known_is_refused(place: str) -> None:
    with pytest.raises(SystemExit, match=place.split(".")[place.startswith("train")]):
        read_settings(TEXT, {place: "3"})
