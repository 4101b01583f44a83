"""verifiers."""

from __future__ import annotations


def test_a_shared_prefix_stands_once(samples_of) -> None:
    nodes = samples_of("verifiers")[0]["nodes"]
    assert [node["parent"] for node in nodes] == [None, 0, 1, 2, 1, 4]


def test_what_is_trained_twice_stands_twice(group, samples_of) -> None:
    # `--weights split`: the shared answer is trained in both sequences, half each.
    for sequence in group[0]["sequences"]:
        sequence["segments"][2] |= {"trainable": True, "mask_reason": None, "weight": 0.5}
    nodes = samples_of("verifiers", [group[0]])[0]["nodes"]
    shared = [node for node in nodes if node["token_ids"] == [1, 20, 30, 31, 40, 2]]
    assert [node["loss_weights"]["rl"] for node in shared] == [[0.0, 0.0, 0.5, 0.5, 0.5, 0.5]] * 2
    assert [node["parent"] for node in nodes] == [None, 0, 1, 2, 0, 4, 5]


def test_what_only_a_later_sequence_trains_is_not_lost_in_an_earlier_ones_context(group, samples_of) -> None:
    first, second = group[0]["sequences"]
    first["segments"][2] |= {"trainable": False, "mask_reason": "user:later"}
    second["segments"][2] |= {"trainable": True, "mask_reason": None}
    nodes = samples_of("verifiers", [group[0]])[0]["nodes"]
    shared = [node["mask"] for node in nodes if node["token_ids"] == [1, 20, 30, 31, 40, 2]]
    assert shared == [[False] * 6, [False, False, True, True, True, True]]


def test_a_stop_token_that_the_next_prompt_lacks_stays_with_the_sequence_that_trains_it(group, samples_of) -> None:
    one = group[0]
    first, second = one["sequences"]
    first |= {
        "leaf_call": 0,
        "token_ids": first["token_ids"][:11],
        "segments": first["segments"][:3],
        "logprobs": first["logprobs"][:4],
        "messages": [0, 1],
    }
    second["segments"][2]["end"] = 10
    second["segments"][3]["start"] = 10
    second["logprobs"].pop(3)
    (trace,) = samples_of("verifiers", [one])
    trained = [node["token_ids"] for node in trace["nodes"] if any(node["mask"])]
    assert trained == [[1, 20, 30, 31, 40, 2], [1, 20, 70, 2]]
    assert [node["parent"] for node in trace["nodes"]] == [None, 0, 0, 2, 3]


def test_a_developer_is_a_system_and_thinking_stands_beside_the_answer(group, samples_of) -> None:
    group[0]["messages"][0] = {"role": "developer", "content": "be brief"}
    group[0]["messages"][3]["reasoning_content"] = "two and two"
    nodes = samples_of("verifiers")[0]["nodes"]
    assert nodes[0]["message"] == {"role": "system", "content": "be brief"}
    assert nodes[3]["message"] == {"role": "assistant", "content": "It is 4.", "reasoning_content": "two and two"}


def test_a_rollout_that_failed_is_not_ok(group, samples_of) -> None:
    group[0]["status"] = "failed"
    first, second = samples_of("verifiers")
    assert (first["ok"], first["stop_condition"]) == (False, "error")
    assert (second["ok"], second["stop_condition"]) == (True, "agent_exit")


def test_tokens_before_an_answer_stand_once_though_a_message_was_said_twice(group, samples_of) -> None:
    for sequence in group[0]["sequences"]:
        sequence["messages"].insert(0, sequence["messages"][0])
    nodes = samples_of("verifiers", [group[0]])[0]["nodes"]
    assert [node["message"]["content"] for node in nodes[:3]] == ["2+2?", "2+2?", None]
    assert [node["token_ids"] for node in nodes[:3]] == [[], [1, 10, 11, 2, 3], [1, 20, 30, 31, 40, 2]]
