from __future__ import annotations

import pytest

from turnstile.conversation import RetryMark
from turnstile.protocols.headers import retry_mark


def test_key_and_count_are_read():
    headers = {"idempotency-key": " k-1 ", "x-stainless-retry-count": "2", "other": "x"}
    assert retry_mark(headers) == RetryMark("k-1", 2)


def test_a_request_without_them_says_nothing():
    assert retry_mark({}) == RetryMark("", 0)


@pytest.mark.parametrize("count", ["", "x", "-1", "1.5", "²", "٣", "9" * 5000])
def test_a_count_that_is_no_number_is_ignored(count: str):
    assert retry_mark({"x-stainless-retry-count": count}) == RetryMark("", 0)


def test_a_key_that_is_too_long_is_ignored():
    assert retry_mark({"idempotency-key": "k" * 256}) == RetryMark("", 0)
