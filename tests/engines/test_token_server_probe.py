"""What is found out about a token server before anything is recorded."""

from __future__ import annotations

import pytest

from turnstile.engines import TokenServer
from turnstile.engines.base import Missing, Present
from turnstile.errors import EngineError
from turnstile.generation import LogprobsMode


async def opened(fake):
    server = await TokenServer.open(fake.url)
    await server.close()
    return server.capabilities


def what(entries, name):
    return next((each.how if isinstance(each, Present) else each.remedy for each in entries if each.what == name), None)


@pytest.mark.parametrize("mode", ["temperature", "raw", "processed"])
async def test_what_log_probabilities_are_of_is_measured(token_fake, mode):
    token_fake.mode = mode
    assert what((await opened(token_fake)).present, "log-probabilities").startswith("measured: ")


async def test_numbers_that_are_not_what_the_server_says_are_refused(token_fake):
    token_fake.mode, token_fake.told_mode = "raw", "temperature"
    with pytest.raises(EngineError, match=f"says temperature, .* measured to be {LogprobsMode.RAW}"):
        await opened(token_fake)


async def test_a_server_without_top_p_is_believed(token_fake):
    token_fake.info = {"honours": ["seed"]}
    assert what((await opened(token_fake)).present, "log-probabilities") == "what each answer says of them"


async def test_a_server_that_leaves_stop_ids_out_is_refused(token_fake):
    token_fake.trims_stop_ids = True
    with pytest.raises(EngineError, match="did not end an answer as its last id"):
        await opened(token_fake)


@pytest.mark.parametrize(
    ("echo", "found"), [("prompt_sha256", "ids"), ("prompt_ids", "ids"), ("prompt_tokens", "count")]
)
async def test_what_the_server_says_of_the_prompt_is_seen(token_fake, echo, found):
    token_fake.echo = echo
    assert (await opened(token_fake)).echoes_prompt_ids == found


async def test_what_the_server_does_not_say_is_told_with_its_remedy(token_fake):
    token_fake.echo, token_fake.weight_version, token_fake.info = "prompt_tokens", None, {"honours": []}
    missing = (await opened(token_fake)).missing
    assert [each.what for each in missing] == ["echo of prompt ids", "weight versions", "seeds"]
    assert all(isinstance(each, Missing) and each.remedy for each in missing)


async def test_probes_show_no_placeholder_of_an_image(token_fake):
    token_fake.placeholder_id = 3
    assert (await opened(token_fake)).images == "collapsed"
    assert all(3 not in each["input_ids"] for each in token_fake.probes)
