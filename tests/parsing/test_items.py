"""Where the items of an unfinished answer end."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.conversation import Message, Role, Text, ToolCall, ToolMode, ToolSpec, Usage
from turnstile.generation import Cut, Finish, FinishedItem, Generation, LogprobsMode, Opening
from turnstile.parsing.formats import by_name
from turnstile.parsing.items import finished_items
from turnstile.parsing.parser import Parser, ParserSetup
from turnstile.tokens import IdRun

LS = ToolSpec("ls", '{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}')
CALL = '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call>'
CALLED = (ToolCall("k1", "ls", '{"p": "/a"}'), ToolCall("k2", "ls", '{"p": "/a"}'))


@pytest.fixture(scope="session")
def reading(vocabulary) -> ParserSetup:
    return ParserSetup(vocabulary, by_name("hermes"), lambda: "", tools=(LS,))


def thought(text: str) -> Message:
    return Message(Role.ASSISTANT, reasoning=text)


def said(text: str) -> Message:
    return Message(Role.ASSISTANT, (Text(text),))


def called(number: int) -> Message:
    return Message(Role.ASSISTANT, calls=(CALLED[number],))


def test_each_item_ends_with_the_id_that_completes_it(reading, vocabulary):
    pieces = ["<think>\nHm.\n</think>", "\n\nLook: a < b.", f"\n{CALL}", f"\n{CALL}", '\n<tool_call>\n{"name": "']
    ends = list(itertools.accumulate(len(vocabulary.encode(piece)) for piece in pieces))
    items = finished_items(reading, vocabulary.encode("".join(pieces)), ("k1", "k2"))
    assert items == (
        FinishedItem(thought("Hm."), ends[0]),
        FinishedItem(said("Look: a < b."), ends[1]),
        FinishedItem(called(0), ends[2]),
        FinishedItem(called(1), ends[3]),
    )


@pytest.mark.parametrize(
    "text", ["", "Only text", "<think>\nonly thou", "<think>\nHm.\n</think>\n\n", "<tool_call>\n{"]
)
def test_what_nothing_follows_is_not_finished(reading, vocabulary, text):
    assert finished_items(reading, vocabulary.encode(text), ()) == ()


def test_reasoning_that_the_prompt_opened_ends_with_its_marker(reading, vocabulary):
    opened = msgspec.structs.replace(reading, opening=Opening.REASONING)
    (item,) = finished_items(opened, vocabulary.encode("Hm.</think>Yes"), ())
    assert item == FinishedItem(thought("Hm."), len(vocabulary.encode("Hm.</think>")))


def test_text_that_looked_like_a_marker_until_one_came_has_no_end(reading, vocabulary):
    text, call = finished_items(reading, vocabulary.encode(f"a <{CALL}"), ("k1",))
    assert (text, call.end_S) == (FinishedItem(said("a <"), 0), len(vocabulary.encode(f"a <{CALL}")))


ANSWERS = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "Hm", " \n", "<", "é\N{DUCK}", CALL, "<tool_call>\n", '{"x"', "</tool_call>"]
    ),
    max_size=8,
).map("".join)


@settings(deadline=None)
@given(text=ANSWERS, spelled=st.booleans(), opening=st.sampled_from([Opening.ANSWER, Opening.REASONING]))
def test_an_answer_that_is_cut_where_an_item_ends_says_the_items_so_far_always(
    reading, vocabulary, text, spelled, opening
):
    reading = msgspec.structs.replace(reading, opening=opening)
    ids_S = vocabulary.spell(text) if spelled else vocabulary.encode(text)
    names = [f"k{number}" for number in range(20)]
    items = finished_items(reading, ids_S, names)
    ends = [item.end_S for item in items if item.end_S]
    assert ends == sorted(set(ends))
    for count, item in enumerate(items, 1):
        if item.end_S:
            minted = iter(names)
            parser = Parser(msgspec.structs.replace(reading, mint=lambda minted=minted: next(minted)))
            cut = ids_S.slice(0, item.end_S)
            parsed = parser.finish(
                Generation(cut, None, Finish.LENGTH, "", Usage(0, len(cut)), LogprobsMode.NONE, None)
            )
            before = [each.said for each in items[:count]]
            assert parsed.message.text.rstrip() == "".join(each.text for each in before).rstrip()
            assert parsed.message.reasoning == "".join(each.reasoning for each in before)
            assert parsed.message.calls == tuple(call for each in before for call in each.calls)
            assert parsed.cut is Cut.CONTENT


def test_a_long_answer_is_read_in_chunks_to_the_same_ends(reading, vocabulary):
    head = "<think>\n" + "Hm ha. " * 50 + "</think>"
    text = "Look. " * 40 + "Now"
    pieces = [head, text, CALL, "and more"]
    ends = list(itertools.accumulate(len(vocabulary.encode(piece)) for piece in pieces))
    assert [item.end_S for item in finished_items(reading, vocabulary.encode("".join(pieces)), ("k1",))] == ends[:3]


def test_whitespace_that_an_id_has_behind_a_text_is_no_text_of_it(reading, vocabulary):
    ids_S = vocabulary.encode(f"<think>Hm.</think>Look\n\n{CALL}")
    glued = ByteVocabularyWithGlue(vocabulary)
    items = finished_items(msgspec.structs.replace(reading, vocabulary=glued), glued.glue(ids_S), ("k1",))
    assert items[1] == FinishedItem(said("Look"), len(vocabulary.encode("<think>Hm.</think>Look")))


class ByteVocabularyWithGlue:
    """The vocabulary with one more token, `k` and a blank line."""

    def __init__(self, plain):
        self._plain = plain
        self.size = plain.size + 1

    def token_bytes(self, token_id):
        return b"k\n\n" if token_id == self.size - 1 else self._plain.token_bytes(token_id)

    def is_special(self, token_id):
        return token_id < self.size - 1 and self._plain.is_special(token_id)

    def glue(self, ids_S):
        ids = ids_S.tolist()
        at = next(at for at in range(len(ids)) if ids[at : at + 2] == [ord("k"), self._plain.id_of("\n\n")])
        return IdRun.of([*ids[:at], self.size - 1, *ids[at + 2 :]])


def test_without_tools_there_are_no_calls(reading, vocabulary):
    plain = msgspec.structs.replace(reading, tool_choice=ToolMode.NONE)
    assert finished_items(plain, vocabulary.encode(f"x{CALL}y"), ()) == ()
