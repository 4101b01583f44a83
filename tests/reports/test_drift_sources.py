"""Drift of a store and of a file say the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from turnstile.errors import CallerError
from turnstile.history.forest import Forest
from turnstile.reports.drift_sources import drift_of_forest, drift_of_trajectory
from turnstile.reports.shelf import ModelShelf
from turnstile.store import Reader
from turnstile.trajectory.assemble import assemble


def test_a_call_that_the_template_spells_otherwise_makes_all_behind_it_wrong(
    left: Any, reader: Reader, shelf: ModelShelf
) -> None:
    found = drift_of_forest(Forest.of(reader.records(left.rollout_id)), shelf)
    assert (found.rollout_id, found.attempt, found.group_id) == (left.rollout_id, 1, "g")
    assert (found.calls, found.calls_compared, found.calls_differing) == (3, 3, 1)
    assert (found.sequences, found.sequences_differing) == (1, 1)
    text, call, last = map(len, left.answers)
    assert found.sampled == text + call + last
    assert last < found.wrong < call + last
    assert set(found.wrong_by_kind) == {"json"}
    assert [each.where for each in found.differences] == ["prompt of c2", "sequence of c2"]


def test_a_file_drifts_as_its_store_does(left: Any, reader: Reader, shelf: ModelShelf) -> None:
    forest = Forest.of(reader.records(left.rollout_id))
    (head,) = forest.heads.values()
    of_store, of_file = drift_of_forest(forest, shelf), drift_of_trajectory(assemble(forest), shelf.served(head))
    assert (of_file.sampled, of_file.wrong, of_file.wrong_by_kind) == (
        of_store.sampled,
        of_store.wrong,
        of_store.wrong_by_kind,
    )
    assert (of_file.calls, of_file.calls_compared, of_file.by_call) == (3, 0, ())


def test_nothing_has_no_drift_to_report(shelf: ModelShelf) -> None:
    with pytest.raises(ValueError, match="no rollout"):
        drift_of_forest(Forest(), shelf)


@pytest.mark.parametrize("part", ["tokenizer", "chat template"])
def test_a_file_is_not_compared_with_another_model_than_its_own(
    left: Any, reader: Reader, shelf: ModelShelf, part: str
) -> None:
    forest = Forest.of(reader.records(left.rollout_id))
    rollout = assemble(forest)
    name = {"tokenizer": "tokenizer_sha256", "chat template": "chat_template_sha256"}[part]
    other = msgspec.structs.replace(rollout.heads[0], **{name: "0" * 64})
    with pytest.raises(CallerError, match=f"The {part} given") as refused:
        drift_of_trajectory(msgspec.structs.replace(rollout, heads=(other,)), shelf.served(*forest.heads.values()))
    assert refused.value.code == "model_mismatch"
