"""NeMo-Gym."""

from __future__ import annotations


def test_each_prompt_extends_all_that_stands_before(samples_of) -> None:
    for result in samples_of("nemo_gym"):
        seen: list[int] = []
        for item in result["response"]["output"]:
            assert item["prompt_token_ids"][: len(seen)] == seen
            assert len(item["generation_token_ids"]) == len(item["generation_log_probs"]) > 0
            seen = item["prompt_token_ids"] + item["generation_token_ids"]


def test_forks_are_results_of_their_own(samples_of) -> None:
    assert [len(each["response"]["output"]) for each in samples_of("nemo_gym")] == [2, 1, 1, 2]
