"""What a trained computer-use agent looks at: its held-out score where it cannot see, sees old screens, or is misled.

python -m vision.controls vision/vision.toml RUN      RUN: a folder of `loop.train` that came to its end

Prints a JSON line: the score as it is; with blank screenshots; with the first screenshot again and again; and with
another colour named than the one that counts. An agent that reads words and each new screenshot loses in all three.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from loop.clients import PatientClient
from loop.processes import Servers
from loop.rollouts import Source
from loop.settings import Settings, read_settings
from loop.warm import model_folder
from vision.computer import Computer
from vision.screen import COLOURS, SCREEN, Task, png
from vision.world import VisionWorld

BLANK = png(bytes(SCREEN * SCREEN * 3))


class Seen:
    """A computer whose screenshots are others than its screen."""

    def __init__(self, computer: Computer, shot: bytes) -> None:
        self._computer = computer
        self._shot = shot
        self.click, self.type, self.stage = computer.click, computer.type, computer.stage

    def screenshot(self) -> bytes:
        return self._shot


class BlankWorld(VisionWorld):
    """Nothing on any screen."""

    def shown(self, computer: Computer) -> Computer:
        return Seen(computer, BLANK)


class FirstWorld(VisionWorld):
    """The first screen, whatever has been done since."""

    def shown(self, computer: Computer) -> Computer:
        return Seen(computer, computer.screenshot())


class OtherWorld(VisionWorld):
    """The colour after the one that counts is asked for."""

    def request(self, task: Task) -> str:
        names = list(COLOURS)
        other = names[(names.index(task.colour) + 1) % len(names)]
        return Task(task.seed, other, task.code).instruction()


WORLDS: dict[str, type[VisionWorld]] = {
    "as it is": VisionWorld,
    "blank screenshots": BlankWorld,
    "the first screenshot repeated": FirstWorld,
    "another colour named": OtherWorld,
}


def scores(settings: Settings, model: Path, place: Path) -> dict[str, float]:
    """The held-out score in each world, at temperature 1."""
    found: dict[str, float] = {}
    with Servers(settings, model, place, 0) as servers:
        client = PatientClient(servers.url)
        for name, kind in WORLDS.items():
            world = kind(settings.options)
            tokenizer: Any = None
            source = Source(client, world, settings, tokenizer, "", "exact", lambda _: None)
            found[name] = source.evaluate(name.replace(" ", "-"), 1.0, world.held_out_prompts())["score"]
            world.close()
    return found


def main() -> None:
    """The command line."""
    settings, run = read_settings(Path(sys.argv[1]), {}), Path(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="controls-") as name:
        place = Path(name)
        model = shutil.copytree(model_folder(settings.model), place / "model")
        shutil.copy(run / "model" / "model.safetensors", model)
        found = scores(settings, model, place)
    (run / "controls.json").write_text(json.dumps(found), encoding="utf-8")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
