from __future__ import annotations

from functools import cache
from itertools import groupby

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.conversation import Message, ReplyDelta, ReplyFinish, Role, Text, ToolMode
from turnstile.generation import Cut, Finish, Opening
from turnstile.parsing.formats import by_name, detect
from turnstile.reasons import NoteCode
from turnstile.templates.tokenizer import Tokenizer
from turnstile.tokens import IdRun

CALL = '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call>'
ARGUMENTS = '{"p": "/a"}'


def test_plain_text_is_handed_out_as_it_is(read):
    told = read(" Hello,\n  world \n")
    assert told.parsed.message == Message(Role.ASSISTANT, (Text(" Hello,\n  world \n"),))
    assert (told.parsed.finish, told.parsed.cut, told.parsed.notes) == (ReplyFinish.STOP, Cut.NONE, ())


def test_an_answer_of_a_stop_token_alone_has_no_parts(read):
    assert read("").parsed.message == Message(Role.ASSISTANT)


def test_reasoning_loses_its_markers_and_the_whitespace_next_to_them(read):
    told = read("<think>\nI need\n the weather. \n</think>\n\nIt is sunny.")
    assert (told.reasoning, told.content) == ("I need\n the weather.", "It is sunny.")


def test_reasoning_that_the_prompt_opened_needs_no_marker(read):
    told = read("plan</think>\nOK", opening=Opening.REASONING)
    assert (told.reasoning, told.content) == ("plan", "OK")


def test_a_marker_repeated_behind_an_opened_block_is_dropped(read):
    told = read("\n<think>plan</think>OK", opening=Opening.REASONING)
    assert (told.reasoning, told.content) == ("plan", "OK")


def test_a_think_marker_behind_content_is_text(read):
    told = read("Use <think> tags</think>")
    assert (told.reasoning, told.content) == ("", "Use <think> tags</think>")


def test_a_call_is_told_name_first_then_arguments_spelled_as_sampled(read):
    told = read('<tool_call>{"name":"ls","arguments":{ "p" :"\\u002fa","n":1.0}}</tool_call>')
    assert told.calls == (("ls", '{ "p" :"\\u002fa","n":1.0}'),)
    assert (told.content, told.parsed.finish, told.parsed.cut) == ("", ReplyFinish.TOOL_CALLS, Cut.NONE)
    pieces = [piece for delta in told.deltas for piece in delta.calls]
    assert [(piece.name, piece.arguments) for piece in pieces] == [("ls", ""), ("", told.calls[0][1])]


def test_whitespace_between_content_and_calls_is_dropped_and_other_text_kept(read):
    told = read(f"I will list.\n\n{CALL}\n{CALL}\nDone \n")
    assert told.content == "I will list.\nDone \n"
    assert told.calls == (("ls", ARGUMENTS),) * 2


def test_parallel_calls_have_ids_of_their_own(read):
    """C7: equal calls are told apart by ids that we mint."""
    told = read(f"{CALL}\n{CALL}")
    assert [call.call_id for call in told.parsed.message.calls] == ["call-1", "call-2"]


def test_a_call_of_an_unknown_tool_is_delivered(read):
    assert read('<tool_call>{"name": "rm", "arguments": {}}</tool_call>').calls == (("rm", "{}"),)


def test_markers_spelled_letter_by_letter_count_too(vocabulary, read_run):
    told = read_run(vocabulary.spell(f"<think>a</think>b{CALL}"))
    assert (told.reasoning, told.content, told.calls) == ("a", "b", (("ls", ARGUMENTS),))


@pytest.mark.parametrize("how", [{"tool_choice": ToolMode.NONE}, {"tools": ()}, {"format": by_name("none")}])
def test_where_no_call_can_be_taken_tool_markers_are_text(read, how):
    told = read(f"See: {CALL}\n", **how)
    assert (told.content, told.calls, told.parsed.finish) == (f"See: {CALL}\n", (), ReplyFinish.STOP)


def test_case_a4_a_hidden_control_token_is_no_text_and_is_noted(read):
    told = read("Hello<|box_start|> world")
    assert told.content == "Hello world"
    assert [(note.code, note.detail) for note in told.parsed.notes] == [
        (NoteCode.SAMPLED_CONTROL_TOKEN, "<|box_start|> at 5")
    ]


def test_case_a4_the_last_token_counts_as_hidden_when_it_ended_nothing(read):
    told = read("Hello<|box_start|>", finish=Finish.LENGTH)
    assert (told.content, told.notes) == ("Hello", ("sampled_control_token",))


def test_a_stop_id_is_never_text_even_if_it_is_no_control_token(vocabulary, read_run):
    told = read_run(vocabulary.encode("Hello!"), stop_ids=frozenset({ord("!")}))
    assert (told.content, told.parsed.notes) == ("Hello", ())


def test_case_b1a_a_call_inside_an_unclosed_think_block_is_delivered(read):
    told = read(f"I will list.\n{CALL}", opening=Opening.REASONING)
    assert (told.reasoning, told.content, told.calls) == ("I will list.", "", (("ls", ARGUMENTS),))
    assert (told.parsed.finish, told.parsed.cut) == (ReplyFinish.TOOL_CALLS, Cut.NONE)
    assert told.notes == ("reasoning_unclosed",)


def test_case_b1a_a_broken_call_inside_an_unclosed_think_block_is_visible(read):
    told = read("Hm.\n<tool_call>{oops</tool_call>", opening=Opening.REASONING)
    assert (told.reasoning, told.content) == ("Hm.", "<tool_call>{oops</tool_call>")
    assert told.notes == ("reasoning_unclosed", "tool_json_invalid")


def test_a_call_that_was_only_thought_of_stays_a_thought(read):
    told = read(f"Maybe {CALL}?\n</think>\n\nNo.", opening=Opening.REASONING)
    assert (told.reasoning, told.content, told.calls) == (f"Maybe {CALL}?", "No.", ())
    assert told.notes == ("tool_section_without_call",)


def test_case_b1b_a_whole_call_in_one_delta_is_delivered(read):
    told = read(f"<think>\nhm\n</think>\n\n{CALL}")
    assert (told.reasoning, told.content, told.calls) == ("hm", "", (("ls", ARGUMENTS),))


def test_case_b2_invalid_json_reaches_the_client_as_text(read):
    raw = '<tool_call>{"name":"grep","arguments":{"q": }}</tool_call>'
    told = read(raw)
    assert (told.content, told.calls, told.parsed.finish) == (raw, (), ReplyFinish.STOP)
    assert told.notes == ("tool_json_invalid",)


def test_case_b2_a_broken_call_leaves_its_intact_neighbours_alone(read):
    told = read(f"{CALL}\n<tool_call>{{</tool_call>\n{CALL}")
    assert (told.content, told.calls) == ("\n<tool_call>{</tool_call>", (("ls", ARGUMENTS),) * 2)


def test_case_b3_only_the_whitespace_next_to_markers_is_trimmed(read):
    told = read("plan \n</think>\n\n OK \n", opening=Opening.REASONING)
    assert (told.reasoning, told.content) == ("plan", "OK \n")


def test_case_b4_arguments_that_are_no_json_are_never_handed_out_as_a_call(read):
    raw = '<tool_call>{"name": "search", "arguments": {"q": "a" "b"}}</tool_call>'
    told = read(raw)
    assert (told.content, told.calls, told.notes) == (raw, (), ("tool_json_invalid",))


def test_a_marker_without_a_call_is_shown_and_noted(read):
    told = read("The <tool_call> tag opens a call.")
    assert told.content == "The <tool_call> tag opens a call."
    assert told.notes == ("tool_section_without_call",)


def test_a_cut_inside_a_call_hands_out_the_raw_text(read):
    raw = 'Listing. <tool_call>\n{"name": "ls", "argum'
    told = read(raw, finish=Finish.LENGTH)
    assert (told.content, told.calls) == (raw, ())
    assert (told.parsed.finish, told.parsed.cut, told.notes) == (ReplyFinish.LENGTH, Cut.CALL, ("cut_in_call",))


def test_a_cut_behind_a_call_is_no_end_by_tool_calls(read):
    told = read(f"{CALL}\nAnd", finish=Finish.LENGTH)
    assert (told.content, told.calls) == ("\nAnd", (("ls", ARGUMENTS),))
    assert (told.parsed.finish, told.parsed.cut) == (ReplyFinish.LENGTH, Cut.CONTENT)


def test_a_cut_inside_reasoning_says_so(read):
    told = read("<think>\nI wonder ", finish=Finish.LENGTH)
    assert (told.reasoning, told.content) == ("I wonder", "")
    assert (told.parsed.finish, told.parsed.cut) == (ReplyFinish.LENGTH, Cut.REASONING)
    assert told.notes == ("reasoning_unclosed",)


def test_a_cut_inside_a_call_that_was_thought_of_is_a_cut_inside_reasoning(read):
    told = read('<think>so\n<tool_call>{"name": "l', finish=Finish.LENGTH)
    assert (told.reasoning, told.content, told.calls) == ('so\n<tool_call>{"name": "l', "", ())
    assert (told.parsed.cut, told.notes) == (Cut.REASONING, ("reasoning_unclosed",))


def test_a_stop_token_inside_reasoning_is_no_cut(read):
    told = read("<think>\nI wonder")
    assert (told.reasoning, told.parsed.finish, told.parsed.cut) == ("I wonder", ReplyFinish.STOP, Cut.NONE)
    assert told.notes == ("reasoning_unclosed",)


def test_case_d1_text_ends_before_the_stop_string_whatever_was_sampled_behind_it(read):
    told = read("a b ha ha x", stop=(" ha ha",), stop_string=" ha ha")
    assert (told.content, told.parsed.stop_string) == ("a b", " ha ha")
    assert (told.parsed.finish, told.parsed.cut) == (ReplyFinish.STOP, Cut.CONTENT)


def test_a_stop_string_that_never_completes_is_text(read):
    assert read("a ha", stop=(" ha ha",)).content == "a ha"


def test_a_stop_string_inside_reasoning_or_a_call_ends_the_answer_there(read):
    told = read("<think>a b", stop=(" b",), stop_string=" b")
    assert (told.reasoning, told.parsed.cut) == ("a", Cut.REASONING)
    told = read(CALL, stop=("</tool_call>",), stop_string="</tool_call>")
    assert (told.calls, told.parsed.cut) == ((("ls", ARGUMENTS),), Cut.CALL)


def test_case_k1_a_character_of_four_tokens_appears_once(read):
    told = read("a\N{GRINNING FACE}b")
    assert told.content == "a\N{GRINNING FACE}b"
    assert not any("\ufffd" in delta.content for delta in told.deltas)


def test_case_k1_a_cut_inside_a_character_gives_one_replacement_character(vocabulary, read_run):
    ids_S = IdRun.of([ord("a"), *"\N{GRINNING FACE}".encode()[:2]])
    assert read_run(ids_S, finish=Finish.LENGTH).content == "a\ufffd"


def test_a_prefill_is_read_and_not_handed_out(read):
    told = read(" world", opening=Opening.PREFILL, prefill="Hello")
    assert told.content == " world"


def test_a_prefill_may_have_opened_the_reasoning(read):
    told = read(" think</think>\nYes", opening=Opening.PREFILL, prefill="<think>\nI")
    assert (told.reasoning, told.content) == (" think", "Yes")


def test_a_call_that_a_prefill_began_is_handed_out_whole(read):
    told = read('"arguments": {}}</tool_call>', opening=Opening.PREFILL, prefill='On it. <tool_call>{"name": "ls", ')
    assert (told.content, told.calls) == ("", (("ls", "{}"),))


def test_a_broken_call_that_a_prefill_began_shows_only_the_continuation(read):
    told = read("oops</tool_call>!", opening=Opening.PREFILL, prefill='<tool_call>{"name": "ls", ')
    assert (told.content, told.calls) == ("oops</tool_call>!", ())


def test_ids_that_no_delta_brought_are_read_at_the_end(vocabulary, whole):
    ids_S = vocabulary.encode("<think>a</think>b<|im_end|>")
    parsed = whole(ids_S)
    assert (parsed.message.reasoning, parsed.message.text) == ("a", "b")
    assert parsed.flush == (ReplyDelta(reasoning="a", content="b"),)


PIECES = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "\n",
        " ",
        "{",
        "}",
        '"',
        '{"name": "ls", "arguments": {"p": "</tool_call>"}}',
        CALL,
        "a",
        "<",
        "<tool",
        " ha",
        "\N{GRINNING FACE}",
        "\u00e9",
        "<|box_start|>",
        "<|python_tag|>",
        '{"name": "ls", "parameters": {}}',
        ";",
        "<function=ls>",
        "<parameter=p>",
        "\nx\n",
        "</parameter>",
        "</function>",
    ]
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_the_answer_never_depends_on_how_its_ids_were_cut(vocabulary, read_run, data):
    text = "".join(data.draw(st.lists(PIECES, max_size=14)))
    ids_S = vocabulary.encode(text)
    ids_S = ids_S.slice(0, data.draw(st.integers(0, len(ids_S)))) if data.draw(st.booleans()) else ids_S
    how = {
        "format": by_name(data.draw(st.sampled_from(["hermes", "qwen3_coder", "llama3_json", "none"]))),
        "opening": data.draw(st.sampled_from(Opening)),
        "prefill": "".join(data.draw(st.lists(PIECES, max_size=3))),
        "stop": data.draw(st.sampled_from([(), (" ha ha", "a "), ("</tool_call>",), ("\n",)])),
        "finish": data.draw(st.sampled_from([Finish.STOP, Finish.LENGTH])),
    }
    cuts = data.draw(st.lists(st.integers(0, len(ids_S))))
    whole, cut, single = read_run(ids_S, cuts=(), **how), read_run(ids_S, cuts=cuts, **how), read_run(ids_S, **how)
    for told in (cut, single):
        assert told.parsed.message == whole.parsed.message
        assert told.parsed.notes == whole.parsed.notes
        assert (told.parsed.finish, told.parsed.cut) == (whole.parsed.finish, whole.parsed.cut)
        assert told.parsed.stop_string == whole.parsed.stop_string


REAL = ["qwen3", "qwen3.5", "llama3.1", "smollm2"]


@pytest.fixture(scope="session")
def tokenizer(family_files):
    def tokenizer(name):
        return Tokenizer.from_json(family_files(name).tokenizer_json)

    return cache(tokenizer)


@pytest.mark.families
@pytest.mark.parametrize("name", REAL)
def test_case_k1_characters_of_real_tokenizers_come_whole_or_once_replaced(tokenizer, read_with, name):
    vocabulary = tokenizer(name)
    text = "Ünïcödé: \N{GRINNING FACE}\N{FAMILY} 漢字テスト ☃️ and text"
    ids_S = vocabulary.encode(text)
    told = read_with(vocabulary, ids_S)
    assert told.content == text
    assert not any("\ufffd" in delta.content for delta in told.deltas)
    for end in range(len(ids_S)):
        cut = read_with(vocabulary, ids_S.slice(0, end), finish=Finish.LENGTH).content
        assert cut == b"".join(map(vocabulary.token_bytes, ids_S.slice(0, end))).decode(errors="replace")
        assert cut.count("\ufffd") <= 1


@pytest.mark.families
def test_case_a4_with_the_ids_of_the_report(tokenizer, read_with):
    told = read_with(tokenizer("qwen3"), IdRun.of([9707, 151646, 1879, 151645]))
    assert (told.content, told.notes) == ("Hello world", ("sampled_control_token",))


@pytest.mark.families
def test_case_d1_with_the_ids_of_a_real_tokenizer(tokenizer, read_with):
    vocabulary = tokenizer("qwen3")
    ids_S = IdRun.of([64, 293, *(vocabulary.encode(" ha").tolist() * 2), *vocabulary.encode(" x").tolist()])
    told = read_with(vocabulary, ids_S, stop=(" ha ha",), stop_string=" ha ha")
    assert (told.content, told.parsed.stop_string, told.parsed.cut) == ("a b", " ha ha", Cut.CONTENT)


@pytest.mark.families
@pytest.mark.parametrize(
    ("name", "format", "text"),
    [
        (
            "qwen3",
            "hermes",
            '<think>\nhm\n</think>\n\n<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call>',
        ),
        ("qwen2.5", "hermes", '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call>'),
        ("hermes3", "hermes", '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call>'),
        (
            "qwen3.5",
            "qwen3_coder",
            "hm\n</think>\n\n<tool_call>\n<function=ls>\n<parameter=p>\n/a\n</parameter>\n</function>\n</tool_call>",
        ),
        ("llama3.1", "llama3_json", '{"name": "ls", "parameters": {"p": "/a"}}'),
        ("llama3.1", "llama3_json", '<|python_tag|>{"name": "ls", "parameters": {"p": "/a"}}'),
    ],
)
def test_calls_of_real_tokenizers_are_read(tokenizer, family_files, read_with, name, format, text):
    found = detect(family_files(name).chat_template)
    assert found.tool_calls == format
    opening = Opening.REASONING if text.startswith("hm") else Opening.ANSWER
    told = read_with(tokenizer(name), tokenizer(name).encode(text), format=found, opening=opening)
    assert (told.content, told.calls, told.notes) == ("", (("ls", ARGUMENTS),), ())
    assert told.reasoning == ("hm" if "hm" in text else "")


def test_case_e1_text_behind_a_call_is_told_behind_it_even_when_all_ids_come_at_once(vocabulary, read_run):
    ids_S = vocabulary.encode(f"<think>r</think>Hi{CALL} done")
    for cuts in ((), None):
        told = read_run(ids_S, cuts=cuts, finish=Finish.LENGTH)
        kinds = [
            kind
            for delta in told.deltas
            for kind, shown in (("r", delta.reasoning), ("t", delta.content), ("c", delta.calls))
            if shown
        ]
        assert [kind for kind, _ in groupby(kinds)] == ["r", "t", "c", "t"]
