"""What of a sequence the audit compares."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from turnstile.reports.audit_subject import Filter, subject_of


def test_each_sampled_token_has_its_place_its_number_and_what_stands_in_it(toy: Any) -> None:
    talk = toy.Talk()
    rollout = talk.rollout(talk.exact, temperature=0.5, top_p=0.9, top_k=7, call={"logprobs_temperature": 0.5})
    subject = subject_of(rollout, rollout.sequences[0], lambda sequence: None)
    assert [each.at for each in subject.drawn_D] == talk.places
    first = subject.drawn_D[0]
    assert (first.call, first.temperature, first.sampling_temperature) == (0, 0.5, 0.5)
    assert first.filter == Filter(top_p=0.9, top_k=7)
    assert subject.drawn_D[-1].call == 1
    assert (subject.other_prompts, subject.vocab_size) == ({}, 40)


def test_recorded_kept_sets_stand_for_the_filters(toy: Any) -> None:
    talk = toy.Talk()
    rollout = talk.rollout(talk.exact, top_k=2)
    subject = subject_of(rollout, rollout.sequences[0], lambda sequence: [(at, at + 1) for at in range(40)])
    assert (subject.drawn_D[3].kept, subject.drawn_D[3].filter.is_on) == ((3, 4), False)


def test_calls_whose_prompt_has_another_hash_are_noted(toy: Any) -> None:
    talk = toy.Talk()
    rollout = talk.rollout(talk.exact, talk.swapped(30))
    subject = subject_of(rollout, rollout.sequences[0], lambda sequence: None)
    assert subject.other_prompts == {1: rollout.calls[1].prompt_sha256}


def test_tokens_that_another_path_owns_are_compared_too(toy: Any) -> None:
    talk = toy.Talk()
    rollout = talk.rollout(talk.exact)
    sequence = rollout.sequences[0]
    segments = tuple(replace(each, trainable=False) for each in sequence.segments)
    subject = subject_of(rollout, replace(sequence, segments=segments), lambda sequence: None)
    assert len(subject.drawn_D) == 40


def test_a_filter_is_on_only_if_it_cuts() -> None:
    assert [
        each.is_on for each in (Filter(), Filter(top_p=0.9), Filter(top_k=0), Filter(top_k=3), Filter(min_p=0.1))
    ] == [
        False,
        True,
        False,
        True,
        True,
    ]
