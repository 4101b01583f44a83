from __future__ import annotations

import math

import pytest
from msgspec import UNSET

from turnstile.conversation import ReplyFinish, TokenLogprob, Usage
from turnstile.protocols.gemini_answer import (
    UNKNOWN_LOGPROB,
    WireLogprobs,
    WireToken,
    WireTopTokens,
    WireUsage,
    finish_reason_of,
    logprobs_of,
    usage_of,
)


def test_usage_adds_up_and_tells_cached_tokens_where_they_are_known():
    assert usage_of(Usage(11, 5, 8)) == WireUsage(11, 5, 16, 8)
    assert usage_of(Usage(11, 5)) == WireUsage(11, 5, 16, UNSET)


@pytest.mark.parametrize(
    ("finish", "reason"),
    [(ReplyFinish.STOP, "STOP"), (ReplyFinish.LENGTH, "MAX_TOKENS"), (ReplyFinish.TOOL_CALLS, "STOP")],
)
def test_only_the_limit_is_a_reason_of_its_own(finish, reason):
    assert finish_reason_of(finish) == reason


def test_log_probabilities_are_shown_as_many_as_were_asked_for():
    tokens = [TokenLogprob(b"a", -0.5, ((b"a", -0.5), (b"b", -1.0))), TokenLogprob(b"\xff", None)]
    assert logprobs_of(tokens, 1) == WireLogprobs(
        [WireToken("a", -0.5), WireToken("\ufffd", UNKNOWN_LOGPROB)],
        [WireTopTokens([WireToken("a", -0.5)]), WireTopTokens([])],
    )
    assert logprobs_of([TokenLogprob(b"a", -math.inf)], 0) == WireLogprobs(
        [WireToken("a", UNKNOWN_LOGPROB)], [WireTopTokens([])]
    )
    assert logprobs_of(tokens, None) is UNSET
    assert logprobs_of([], 3) is UNSET
