from __future__ import annotations

import json

from turnstile.engines.llamacpp_request import RequestBody, WrittenPrompt, logprobs_mode, segment_seed
from turnstile.engines.llamacpp_slots import Lease, SlotPool
from turnstile.generation import Draw, GrammarConstraint, LogprobsMode


def leased():
    return Lease(SlotPool(2), 1)


def test_a_body_is_the_prompt_and_what_was_sampled_since():
    body = RequestBody(WrittenPrompt(b"5,6", 2), Draw(), leased(), seed=3)
    said = json.loads(body.sample([7, 8], 4))
    assert (said["prompt"], said["n_predict"], said["id_slot"]) == ([5, 6, 7, 8], 4, 1)


def test_stop_strings_are_not_sent_as_the_server_would_drop_their_numbers():
    assert (
        json.loads(RequestBody(WrittenPrompt(b"5", 1), Draw(stop=("x",)), leased(), seed=3).sample([], 4))["stop"] == []
    )


def test_seeds_depend_on_request_choice_and_place_and_never_ask_for_a_random_one():
    seeds = {segment_seed(seed, choice, at) for seed in range(4) for choice in range(4) for at in range(100)}
    assert len(seeds) == 1600
    assert max(seeds) < 0xFFFFFFFF


def test_case_d2_the_mode_is_what_the_server_can_say_of_the_draw():
    assert logprobs_mode(Draw(temperature=0.7, top_p=0.9)) is LogprobsMode.PROCESSED
    assert logprobs_mode(Draw(temperature=0.0)) is LogprobsMode.RAW
    assert logprobs_mode(Draw(constraint=GrammarConstraint("root ::= [a]"))) is LogprobsMode.RAW
