"""Ids that say which answer they belong to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.protocols.responses_ids import ItemId, ItemKind, answer_id_of, item_id_of, owner_of, response_id

answer_ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}-c[0-9]{1,6}", fullmatch=True)


@given(answer_id=answer_ids)
def test_a_response_id_names_its_answer(answer_id: str):
    assert answer_id_of(response_id(answer_id)) == answer_id


@given(item=st.builds(ItemId, answer_ids, st.sampled_from(ItemKind), st.integers(0, 999_999)))
def test_an_item_id_is_read_as_it_was_written(item: ItemId):
    assert item_id_of(str(item)) == item
    assert owner_of(str(item)) == item.answer_id


@pytest.mark.parametrize("text", [None, "", "rs_", "rs_-1", "rs_1", "fc_68ab", "xx_r-c0-0", "rs_r-c0-x", "rs_r-c0-٣"])
def test_an_id_of_someone_else_is_none_of_ours(text: str | None):
    assert item_id_of(text) is None
    assert owner_of(text) == ""


@pytest.mark.parametrize("text", ["", "chatcmpl-r-c0", "r-c0"])
def test_another_id_is_no_response(text: str):
    assert answer_id_of(text) == ""
