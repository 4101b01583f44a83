from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st

from turnstile.protocols.signature import answer_named_by, signature_of


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_a_signature_names_its_answer_always(answer_id):
    assert answer_named_by(signature_of(answer_id)) == answer_id


@given(st.text())
def test_any_other_text_names_nothing(text):
    assert answer_named_by(text) == ""


def test_a_mark_with_no_text_behind_it_names_nothing():
    assert answer_named_by(base64.b64encode(b"turnstile.1.\xff").decode()) == ""


def test_equal_answers_have_equal_signatures_so_that_a_retry_is_told_the_same():
    assert signature_of("r-c1") == signature_of("r-c1") != signature_of("r-c2")
