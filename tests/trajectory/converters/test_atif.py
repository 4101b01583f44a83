"""ATIF."""

from __future__ import annotations


def test_arguments_that_are_no_object_are_kept_raw(group, samples_of) -> None:
    function = group[0]["messages"][1]["tool_calls"][0]["function"]
    for written in ("[1]", "{oh"):
        function["arguments"] = written
        step = samples_of("atif")[0]["steps"][1]
        assert step["tool_calls"][0]["arguments"] == {"_raw": written}


def test_a_result_of_a_call_that_the_step_did_not_make_names_it_aside(group, samples_of) -> None:
    group[0]["messages"][2]["tool_call_id"] = "other"
    step = samples_of("atif")[0]["steps"][1]
    assert step["observation"] == {"results": [{"extra": {"tool_call_id": "other"}, "content": "4"}]}


def test_a_missing_number_leaves_all_of_an_answer_out(samples_of) -> None:
    metrics = samples_of("atif")[3]["steps"][-1]["metrics"]
    assert "logprobs" not in metrics
    assert metrics["completion_token_ids"] == [60, 61, 62, 2]


def test_images_are_files_and_other_media_are_named(group, samples_of) -> None:
    group[0]["messages"][2]["content"] = [
        {"type": "text", "text": "see"},
        {"type": "image", "sha256": "ab" * 32, "media_type": "image/png"},
        {"type": "image", "sha256": "cd" * 32, "media_type": "image/tiff"},
    ]
    (result,) = samples_of("atif")[0]["steps"][1]["observation"]["results"]
    assert result["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"media_type": "image/png", "path": f"ab/{'ab' * 32}"}},
        {"type": "text", "text": f"[image {'cd' * 32}]"},
    ]


def test_thinking_and_system_messages_have_their_places(group, samples_of) -> None:
    group[0]["messages"][0] = {"role": "developer", "content": "be brief"}
    group[0]["messages"][3]["reasoning_content"] = "two and two"
    steps = samples_of("atif")[0]["steps"]
    assert (steps[0]["source"], steps[2]["reasoning_content"]) == ("system", "two and two")


def test_a_tool_message_in_front_of_every_answer_is_a_users(group, samples_of) -> None:
    group[0]["sequences"][1]["messages"] = [2, 1, 4, 5]
    assert samples_of("atif")[1]["steps"][0] == {"step_id": 1, "source": "user", "message": "4"}


def test_a_sequence_without_messages_still_has_its_answers(group, samples_of) -> None:
    group[0]["sequences"][0]["messages"] = []
    steps = samples_of("atif")[0]["steps"]
    assert [(step["step_id"], step["source"], step["message"]) for step in steps] == [
        (1, "agent", ""),
        (2, "agent", ""),
    ]
