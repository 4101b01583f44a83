from __future__ import annotations

import pytest

from turnstile.engines.llamacpp_shapes import Completion, Props, read
from turnstile.engines.wire import WireAnswer
from turnstile.errors import CallerError, EngineError


def test_unknown_fields_are_read_over():
    body = b'{"total_slots":4,"default_generation_settings":{"n_ctx":512,"params":{}},"new":1}'
    assert read(WireAnswer(200, body), Props).total_slots == 4


def test_a_field_of_another_type_is_named():
    body = b'{"tokens":[1,"x"],"stop_type":"eos","tokens_predicted":2,"tokens_evaluated":1,"truncated":false}'
    with pytest.raises(EngineError, match=r"\$\.tokens\[1\]") as caught:
        read(WireAnswer(200, body), Completion)
    assert caught.value.code == "engine_broken"


def test_an_error_that_is_no_json_is_shown_as_it_came():
    with pytest.raises(EngineError, match="status 502: bad gateway") as caught:
        read(WireAnswer(502, b"bad gateway"), Props)
    assert (caught.value.code, caught.value.status) == ("engine_refused", 502)


def test_a_context_overflow_is_the_callers_and_keeps_the_engines_numbers():
    body = (
        b'{"error":{"code":400,"message":"m","type":"exceed_context_size_error","n_prompt_tokens":3000,"n_ctx":2048}}'
    )
    with pytest.raises(CallerError, match="3000 tokens and the engine's context holds 2048"):
        read(WireAnswer(400, body), Completion)


def test_a_redirect_is_no_answer():
    with pytest.raises(EngineError, match="status 302") as caught:
        read(WireAnswer(302, b""), Props)
    assert caught.value.code == "engine_broken"
