"""Files of own entries, and what is switched off."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnstile.errors import CallerError
from turnstile.protocols.quirks import KNOWN, FileForm, Quirk, chosen_quirks, read_quirks
from turnstile.protocols.quirks.entry import (
    MarkAuxiliary,
    NameAgent,
    Place,
    RemoveSystemLine,
    ToldOnly,
    ToolsShown,
    When,
)

TOML = """
version = 1
[[quirks]]
name = "clock"
action = { type = "remove_system_line", starts_with = "Current time:", place = "any_line" }
[[quirks]]
name = "my_judge"
when = { tools = "none", system_has = ["You judge"] }
action = { type = "mark_auxiliary", purpose = "judge" }
"""
OWN = (
    Quirk("clock", RemoveSystemLine("Current time:", Place.ANY_LINE)),
    Quirk("my_judge", MarkAuxiliary("judge"), When(tools=ToolsShown.NONE, system_has=("you judge",))),
)
SWITCHED = [quirk.name for quirk in KNOWN if not isinstance(quirk.action, ToldOnly)]


def test_a_file_is_read_in_either_form() -> None:
    json = '{"version": 1, "quirks": [{"name": "a", "action": {"type": "name_agent", "from_headers": ["x-a"]}}]}'
    assert read_quirks(TOML, FileForm.TOML) == OWN
    assert read_quirks(json, FileForm.JSON) == (Quirk("a", NameAgent(("x-a",))),)


def test_own_entries_come_first_and_what_is_told_only_is_left_out() -> None:
    assert [quirk.name for quirk in chosen_quirks(OWN, ())] == ["clock", "my_judge", *SWITCHED]


def test_an_entry_that_is_switched_off_is_not_there_own_or_known() -> None:
    left = [quirk.name for quirk in chosen_quirks(OWN, ("billing_line", "clock"))]
    assert left == ["my_judge", *(name for name in SWITCHED if name != "billing_line")]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("biling_line", "There is no quirk `biling_line` to switch off"),
        ("tools_empty", "Quirk `tools_empty` is only told of, nothing is switched by it"),
    ],
)
def test_what_cannot_be_switched_off_is_refused_with_the_names_that_can(name: str, problem: str) -> None:
    with pytest.raises(CallerError) as refused:
        chosen_quirks((), (name,))
    assert (refused.value.code, refused.value.problem) == ("quirk_unknown", problem)
    assert "billing_line" in refused.value.remedy


@pytest.mark.parametrize("own", [(OWN[0], OWN[0]), (Quirk("billing_line", RemoveSystemLine("x")),)])
def test_a_name_is_there_once(own: tuple[Quirk, ...]) -> None:
    with pytest.raises(CallerError, match="is there twice") as refused:
        chosen_quirks(own, ())
    assert refused.value.code == "quirks_invalid"


def entry(name: str = '"a"', when: str = "{}", action: str = '{"type": "mark_auxiliary", "purpose": "p"}') -> str:
    return f'{{"version": 1, "quirks": [{{"name": {name}, "when": {when}, "action": {action}}}]}}'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ('{"version": 2, "quirks": []}', "has version 2"),
        ('{"quirks": []}', "missing required field `version`"),
        (entry(action='{"type": "delete"}'), "Invalid value 'delete' - at `$.quirks[0].action.type`"),
        (entry(when='{"tool": "none"}'), "unknown field `tool` - at `$.quirks[0].when`"),
        (entry(name='"My Quirk"'), "Quirk `My Quirk`: `name` must be"),
        (entry(), "every call would be auxiliary"),
        (entry(when='{"dialects": ["openai.chat"]}'), "every call would be auxiliary"),
        (entry(when='{"system_has": [""]}'), "`when.system_has` holds an empty text"),
        (entry(when='{"headers": [{"name": "X-A"}]}'), "names the header `X-A`"),
        (entry(when='{"max_tokens": 1}', action='{"type": "mark_auxiliary", "purpose": "a b"}'), "must be one word"),
        (entry(action='{"type": "remove_system_line", "starts_with": " "}'), "the beginning of one line"),
        (entry(action='{"type": "remove_system_line", "starts_with": "a\\nb"}'), "the beginning of one line"),
        (entry(action='{"type": "name_agent", "from_headers": []}'), "`action.from_headers` is empty"),
        (entry(action='{"type": "name_agent", "from_headers": ["a"], "parent_header": "B"}'), "names the header `B`"),
        (entry(action='{"type": "told_only"}'), "does nothing"),
    ],
)
def test_a_file_that_says_what_it_must_not_is_refused_by_entry_and_place(text: str, told: str) -> None:
    with pytest.raises(CallerError) as refused:
        read_quirks(text, FileForm.JSON)
    assert refused.value.code == "quirks_invalid"
    assert told in refused.value.problem


def test_a_file_that_is_no_toml_is_refused_with_its_line() -> None:
    with pytest.raises(CallerError, match=r"cannot be read as TOML: .*line 1"):
        read_quirks("version: 1", FileForm.TOML)


def test_the_example_of_the_reference_page_is_read() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "quirks.md").read_text(encoding="utf-8")
    example = page.partition("```toml\n")[2].partition("```")[0]
    assert [quirk.name for quirk in read_quirks(example, FileForm.TOML)] == ["clock", "my_judge", "my_sub_agent"]
