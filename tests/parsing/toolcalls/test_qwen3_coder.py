from __future__ import annotations

import pytest

from turnstile.generation import Finish
from turnstile.parsing.formats import by_name
from turnstile.parsing.toolcalls.base import NotACall, Unfinished
from turnstile.parsing.toolcalls.qwen3_coder import Qwen3Coder

XML = by_name("qwen3_coder")
CALL = """<tool_call>
<function=cat>
<parameter=n>
3
</parameter>
<parameter=text>
 a
<b> é

</parameter>
<parameter=tags>
["x","y"]
</parameter>
<parameter=limit>
null
</parameter>
</function>
</tool_call>"""
ARGUMENTS = '{"n": 3, "text": " a\\n<b> é\\n", "tags": ["x","y"], "limit": null}'


@pytest.fixture
def told(read, cat):
    return lambda text, **how: read(text, **{"format": XML, "tools": (cat,), **how})


def test_values_are_typed_by_the_tools_schema(told):
    answer = told(f"Reading.\n\n{CALL}\n{CALL}")
    assert (answer.content, answer.calls) == ("Reading.", (("cat", ARGUMENTS),) * 2)


def test_an_unknown_tools_values_are_strings(told):
    answer = told("<tool_call><function=f><parameter=n>3</parameter></function></tool_call>")
    assert answer.calls == (("f", '{"n": "3"}'),)


def test_a_call_without_parameters_has_no_arguments(told):
    assert told("<tool_call>\n<function=f>\n</function>\n</tool_call>").calls == (("f", "{}"),)


def test_tags_inside_a_value_are_text(told):
    value = "</function>\n</tool_call> <function=x> <parameter=y>"
    text = f"<tool_call>\n<function=cat>\n<parameter=text>\n{value}\n</parameter>\n</function>\n</tool_call>"
    ((name, arguments),) = told(text).calls
    assert (name, arguments) == ("cat", '{"text": "' + value.replace("\n", "\\n") + '"}')


@pytest.mark.parametrize("end", ["", "\n</tool_call>"])
def test_a_call_may_stand_without_its_opening_marker(told, end):
    answer = told(f"<function=f>\n</function>{end} ok")
    assert (answer.content, answer.calls) == (" ok", (("f", "{}"),))


def test_closing_tags_left_out_at_the_end_are_forgiven(told):
    answer = told("<tool_call>\n<function=cat>\n<parameter=n>\n3\n<parameter=text>\nx")
    assert answer.calls == (("cat", '{"n": 3, "text": "x"}'),)


def test_a_cut_call_is_text(told):
    answer = told(CALL[:-12], finish=Finish.LENGTH)
    assert (answer.content, answer.calls, answer.notes) == (CALL[:-12], (), ("cut_in_call",))


def test_a_marker_that_no_function_follows_is_text(told):
    answer = told("The <tool_call> tag, and <function= too")
    assert (answer.content, answer.calls) == ("The <tool_call> tag, and <function= too", ())
    assert answer.notes == ("tool_section_without_call", "tool_section_without_call")


def test_nothing_is_said_of_a_section_before_it_is_certain():
    assert Qwen3Coder().read("<tool_call>\n<func", ()) == Unfinished()
    assert isinstance(Qwen3Coder().read("<tool_call>\n<fun!", ()), NotACall)
