"""The settings of a conversion."""

from __future__ import annotations

import pytest

from turnstile.errors import CallerError
from turnstile.trajectory.converters.options import Advantage, OneSequence, Options, RawLogprobs, options_of


def test_options_are_words_and_numbers() -> None:
    assert options_of({"one_sequence": "last", "raw_logprobs": "allow", "advantage": "rloo", "drop": ["a", "b"]}) == (
        Options(
            one_sequence=OneSequence.LAST,
            raw_logprobs=RawLogprobs.ALLOW,
            advantage=Advantage.RLOO,
            drop=frozenset({"a", "b"}),
        )
    )


@pytest.mark.parametrize(
    ("given", "word"),
    [({"colour": 1}, "colour"), ({"advantage": "best"}, "best"), ({"max_length": -1}, "max_length")],
)
def test_an_option_that_there_is_not_is_refused_by_name(given: dict[str, object], word: str) -> None:
    with pytest.raises(CallerError, match=word) as refused:
        options_of(given)
    assert refused.value.code == "option_invalid"
