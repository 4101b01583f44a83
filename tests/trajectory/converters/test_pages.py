"""Each trainer has its page, and the page shows what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from turnstile.trajectory.converters import CONVERTERS
from turnstile.trajectory.converters.base import Converter, Media
from turnstile.trajectory.converters.options import Advantage, Options

PAGES = Path(__file__).parent.parent.parent.parent / "docs" / "train"


@pytest.mark.parametrize("converter", CONVERTERS, ids=lambda each: each.name)
def test_a_page_shows_how_samples_become_the_trainers_own(converter: Converter) -> None:
    page = (PAGES / f"{converter.name.replace('_', '-')}.md").read_text(encoding="utf-8")
    block = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]
    compile(block, converter.name, "exec")
    assert f'turnstile.convert("rollouts.parquet", "{converter.name}"' in block
    assert set(re.findall(r"[(,] ?(\w+)=", block.split("turnstile.convert(")[1].split(")")[0])) <= set(
        Options.__struct_fields__
    )


def test_the_overview_names_every_trainer_every_advantage_and_who_takes_images() -> None:
    overview = (PAGES / "README.md").read_text(encoding="utf-8")
    assert [each.name for each in CONVERTERS if f"[`{each.name}`]" not in overview] == []
    assert [each for each in Advantage if f"| `{each}` |" not in overview] == []
    (sentence,) = re.findall(r"Images beside exact ids are taken by ([^;]*);", overview)
    takers = [each.name for each in CONVERTERS if each.facts.media is Media.CARRIED]
    assert re.findall(r"`(\w+)`", sentence) == takers
