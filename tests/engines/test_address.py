from __future__ import annotations

import pytest

from turnstile.engines.address import engine_url
from turnstile.errors import CallerError


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("https://models.example/llama/", "https://models.example/llama"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_an_address_is_kept_but_for_the_slash_at_its_end(target, url):
    assert engine_url(target) == url


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("embeded", "`embeded` is neither a URL nor `embedded`"),
        ("", "neither a URL nor `embedded`"),
        ("ftp://127.0.0.1", "neither a URL nor `embedded`"),
        ("http://", "neither a URL nor `embedded`"),
        ("http://127.0.0.1:port", "neither a URL nor `embedded`"),
        ("http://[::1", "neither a URL nor `embedded`"),
        ("127.0.0.1:8080", "Write http://127.0.0.1:8080."),
        ("localhost", "Write http://localhost."),
        ("gpu-box:8080/", "Write http://gpu-box:8080."),
        ("[::1]:8080", "Write http://[::1]:8080."),
        ("http://127.0.0.1:8080/v1", "Leave /v1 out: http://127.0.0.1:8080."),
        ("https://a.example/llama/v1/", "Leave /v1 out: https://a.example/llama."),
        ("http://127.0.0.1:8080?x=1", "without `?`"),
    ],
)
def test_an_address_that_cannot_be_says_how_to_write_it(target, told):
    with pytest.raises(CallerError) as refused:
        engine_url(target)
    assert refused.value.code == "engine_address"
    assert told in str(refused.value)


@pytest.mark.parametrize(
    "target",
    [
        "http://user:planted@127.0.0.1:8080",
        "https://planted@h.example",
        "user:planted@h.example:8080",
        "http://user:planted@h.example/v1?x=planted",
        "http://h.example:8080/?key=planted",
        "http://h.example:8080/#planted",
    ],
)
def test_an_address_that_holds_a_secret_is_refused_and_the_secret_is_not_shown(target: str) -> None:
    with pytest.raises(CallerError, match=r"user or password|more than a path") as refused:
        engine_url(target)
    assert "planted" not in str(refused.value)
