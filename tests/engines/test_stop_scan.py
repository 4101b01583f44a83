from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnstile.engines.stop_scan import StopHit, StopScan
from turnstile.generation import Draw


class Bytes:
    """Ids are bytes; 256 is a control token."""

    size = 257

    def token_bytes(self, token_id):
        return bytes([token_id]) if token_id < 256 else b"<stop>"

    def is_special(self, token_id):
        return token_id == 256


def fed_in_pieces(scan, tokens, size):
    for start in range(0, len(tokens), size):
        hit = scan.feed(tokens[start : start + size])
        if hit is not None:
            return start + hit.index, hit.stop_string
    return None


@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1), st.integers(1, 7))
def test_the_answer_ends_with_the_first_token_that_completes_a_stop_string(text, stops, size):
    found = fed_in_pieces(StopScan(Draw(stop=tuple(stops)), Bytes()), list(text.encode()), size)
    ends = [end for end in range(len(text)) if any(text[: end + 1].endswith(stop) for stop in stops)]
    assert (found and found[0]) == (ends[0] if ends else None)
    if found:
        assert text[: found[0] + 1].endswith(found[1])


def test_a_stop_string_is_found_across_a_character_of_several_tokens():
    scan = StopScan(Draw(stop=("。",)), Bytes())
    assert fed_in_pieces(scan, list("好。x".encode()), 2) == (5, "。")


def test_the_text_of_a_control_token_is_no_text_of_the_answer():
    assert StopScan(Draw(stop=("<stop>",)), Bytes()).feed([256]) is None


def test_a_stop_token_ends_the_answer_without_a_string():
    assert StopScan(Draw(stop_ids=frozenset({256})), Bytes()).feed([97, 256, 97]) == StopHit(1, "")
