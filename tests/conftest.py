"""Real tokenizers and templates for tests, fetched on first use and then cached."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from turnstile.templates.files import ModelFiles

FETCH = Path(__file__).parent / "families" / "fetch.py"
FAMILY_FIXTURES = frozenset({"family", "family_files", "package_file"})


class Families:
    """Where families lie, and why some could not be had; asks only once for each."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}

    def run(self, *arguments: str) -> Path:
        done = subprocess.run([sys.executable, str(FETCH), *arguments], stdout=subprocess.PIPE, text=True, check=True)
        answer = json.loads(done.stdout)
        self.failed |= answer["failed"]
        return Path(answer["folder"])

    def path(self, name: str, *arguments: str) -> Path:
        path = self.run(*arguments) / name if name not in self.failed else Path(name)
        if name in self.failed:
            pytest.skip(self.failed[name])
        return path


FAMILIES = Families()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch before the first test, whose time limit is not meant for downloads, and where progress is seen."""
    if session.config.option.collectonly:
        return
    if any(FAMILY_FIXTURES.intersection(getattr(item, "fixturenames", ())) for item in session.items):
        capture = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            FAMILIES.run("--default")


@pytest.fixture(scope="session")
def family() -> Callable[[str], Path]:
    """A model folder by family name; skips, with the reason, where it cannot be had."""
    return cache(lambda name: FAMILIES.path(name, name))


@pytest.fixture(scope="session")
def family_files(family: Callable[[str], Path]) -> Callable[[str], ModelFiles]:
    """What a family's folder says."""

    @cache
    def files(name: str) -> ModelFiles:
        folder = family(name)
        return ModelFiles.from_texts(
            tokenizer_json=(folder / "tokenizer.json").read_text(encoding="utf-8"),
            tokenizer_config_json=(folder / "tokenizer_config.json").read_text(encoding="utf-8"),
            chat_template=(folder / "chat_template.jinja").read_bytes().decode(),
            generation_config_json=(folder / "generation_config.json").read_text(encoding="utf-8"),
        )

    return files


@pytest.fixture(scope="session")
def package_file() -> Callable[[str, str], Path]:
    """A file of a package of `tests/families/packages.py`, by the package's key and the file's name."""
    return cache(lambda package, name: FAMILIES.path(name, "--file", package, name))
