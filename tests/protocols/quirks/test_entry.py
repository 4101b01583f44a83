"""The form of an entry."""

from __future__ import annotations

import msgspec
import pytest

from turnstile.protocols.quirks.entry import MarkAuxiliary, Place, Quirk, RemoveSystemLine, ToolsShown, When


def test_an_entry_survives_being_written_and_read() -> None:
    entry = Quirk("a", MarkAuxiliary("title"), When(tools=ToolsShown.NONE, system_has=("x",)), who="b")
    assert msgspec.json.decode(msgspec.json.encode(entry), type=Quirk) == entry


def test_an_action_is_told_by_its_type_and_the_rest_has_defaults() -> None:
    written = b'{"name": "a", "action": {"type": "remove_system_line", "starts_with": "x"}}'
    assert msgspec.json.decode(written, type=Quirk) == Quirk("a", RemoveSystemLine("x", Place.FIRST_LINE), When())


def test_a_member_that_no_entry_has_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `wen`"):
        msgspec.json.decode(b'{"name": "a", "action": {"type": "told_only"}, "wen": {}}', type=Quirk)
