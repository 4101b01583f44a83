from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache

import pytest

from turnstile.conversation import Message, Role, Text, ToolCall
from turnstile.errors import CallerError
from turnstile.templates.files import ModelFiles, ModelFilesError
from turnstile.templates.render import (
    ArgumentsForm,
    ContentForm,
    GenerationPrompt,
    MessageForm,
    RenderRequest,
    Template,
    TemplateFailed,
)
from turnstile.templates.tokenizer import Tokenizer
from turnstile.tokens import IdRun, first_difference

pytestmark = pytest.mark.families

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
LS = (
    '{"type":"function","function":{"name":"ls","description":"Lists <files> & more",'
    '"parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}}'
)
Load = Callable[[str], Template]


def user(text: str) -> Message:
    return Message(Role.USER, (Text(text),))


def answer(text: str = "", *calls: ToolCall, reasoning: str = "") -> Message:
    return Message(Role.ASSISTANT, (Text(text),) if text else (), reasoning, calls)


SYSTEM = Message(Role.SYSTEM, (Text("Be brief."),))
CALL = ToolCall("call_1", "ls", '{"path":"/é","deep":1.0}')
RESULT = Message(Role.TOOL, (Text("a.txt"),), call_id="call_1", name="ls")
CYCLE = (SYSTEM, user("Which files?"), answer("", CALL), RESULT)


def render(source: str, *messages: Message, form: MessageForm | None = None, kwargs: str = "{}") -> str:
    request = RenderRequest(messages=messages, kwargs=kwargs, now=NOON, form=form or MessageForm())
    return Template(source, {"bos_token": "<s>", "pad_token": ""}).render(request)


@pytest.fixture(scope="module")
def load(family_files: Callable[[str], ModelFiles]) -> Load:
    @cache
    def load(name: str) -> Template:
        files = family_files(name)
        return Template(files.chat_template, files.special_tokens)

    return load


@pytest.fixture(scope="module")
def qwen3(family_files: Callable[[str], ModelFiles]) -> Tokenizer:
    return Tokenizer.from_json(family_files("qwen3").tokenizer_json)


def test_qwen3_writes_a_tool_cycle_as_its_engines_do(load: Load) -> None:
    assert load("qwen3").render(RenderRequest(messages=CYCLE, tools=(LS,), now=NOON)) == (
        "<|im_start|>system\nBe brief.\n\n# Tools\n\n"
        "You may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
        '{"type": "function", "function": {"name": "ls", "description": "Lists <files> & more", "parameters": '
        '{"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}}\n</tools>\n\n'
        "For each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:\n<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\nWhich files?<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "ls", "arguments": {"path": "/é", "deep": 1.0}}\n</tool_call>'
        "<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\na.txt\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_llama_3_1_writes_a_tool_cycle_as_its_engines_do(load: Load) -> None:
    text = load("llama3.1").render(RenderRequest(messages=CYCLE, tools=(LS,), now=NOON))
    head, _, tail = text.partition("{\n    ")
    assert head == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Environment: ipython\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nGiven the following functions, please respond with a JSON for a "
        "function call with its proper arguments that best answers the given prompt.\n\n"
        'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.'
        "Do not use variables.\n\n"
    )
    assert tail.endswith(
        "\n}\n\nWhich files?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
        '{"name": "ls", "parameters": {"path": "/é", "deep": 1.0}}<|eot_id|>'
        '<|start_header_id|>ipython<|end_header_id|>\n\n"a.txt"<|eot_id|>'
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_gpt_oss_writes_a_tool_cycle_as_its_engines_do_with_the_frozen_date(load: Load) -> None:
    assert load("gpt-oss").render(RenderRequest(messages=CYCLE, tools=(LS,), now=NOON)) == (
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
        "Knowledge cutoff: 2024-06\nCurrent date: 2026-01-02\n\nReasoning: medium\n\n"
        "# Valid channels: analysis, commentary, final. Channel must be included for every message.\n"
        "Calls to these tools must go to the commentary channel: 'functions'.<|end|>"
        "<|start|>developer<|message|># Instructions\n\nBe brief.\n\n# Tools\n\n## functions\n\n"
        "namespace functions {\n\n// Lists <files> & more\ntype ls = (_: {\npath: string,\n}) => any;\n\n"
        "} // namespace functions<|end|><|start|>user<|message|>Which files?<|end|>"
        '<|start|>assistant to=functions.ls<|channel|>commentary json<|message|>{"path": "/é", "deep": 1.0}<|call|>'
        '<|start|>functions.ls to=assistant<|channel|>commentary<|message|>"a.txt"<|end|><|start|>assistant'
    )


def test_case_a2_a_template_that_prints_a_begin_token_gives_exactly_one(
    load: Load, family_files: Callable[[str], ModelFiles]
) -> None:
    tokenizer = Tokenizer.from_json(family_files("llama3.1").tokenizer_json)
    ids = tokenizer.encode(load("llama3.1").render(RenderRequest(messages=(user("hi"),), now=NOON))).tolist()
    assert (ids[0], ids.count(128000)) == (128000, 1)


def test_case_g4_no_tools_and_an_empty_list_of_tools_are_one_prompt(load: Load) -> None:
    plain = RenderRequest(messages=CYCLE[:2], now=NOON)
    assert load("llama3.1").render(RenderRequest(messages=CYCLE[:2], tools=(), now=NOON)) == load("llama3.1").render(
        plain
    )
    assert "tools" not in load("llama3.1").render(plain)


def test_tools_keep_their_order_and_the_order_of_their_keys() -> None:
    request = RenderRequest(messages=(), tools=('{"b":1,"a":{"d":2,"c":3}}', '{"a":0}'), now=NOON)
    assert Template("{{ tools | tojson }}", {}).render(request) == '[{"b": 1, "a": {"d": 2, "c": 3}}, {"a": 0}]'


def test_qwen3_drops_the_thinking_of_an_earlier_turn_so_held_ids_cannot_come_from_a_render(
    load: Load, qwen3: Tokenizer
) -> None:
    first = load("qwen3").render(RenderRequest(messages=(user("hi"),), now=NOON))
    sampled = "<think>\nI saw three files.\n</think>\n\nThree files. \n\n<|im_end|>"
    held = qwen3.encode(first) + qwen3.encode(sampled)
    history = (user("hi"), answer("Three files. \n\n", reasoning="I saw three files."), user("more"))
    again = qwen3.encode(load("qwen3").render(RenderRequest(messages=history, now=NOON)))
    assert (len(held), first_difference(held, again)) == (23, 9)
    assert held.slice(8, 17) == IdRun.of([198, 151667, 198, 40, 5485, 2326, 3542, 624, 151668])
    assert again.slice(8, 17) == IdRun.of([198, 19641, 3542, 13, 4710, 151645, 198, 151644, 872])


def test_qwen3_writes_json_of_its_own_so_the_ids_of_a_call_change(load: Load, qwen3: Tokenizer) -> None:
    call = ToolCall("c", "bash", '{"timeout":5,"cmd":"ls  -la"}')
    text = load("qwen3").render(RenderRequest(messages=(user("go"), answer("", call)), tools=(LS,), now=NOON))
    assert '{"timeout": 5, "cmd": "ls  -la"}' in text
    assert qwen3.encode('timeout":5,"cmd":"ls').tolist() == [14150, 788, 20, 1335, 8710, 3252, 4730]
    assert qwen3.encode('timeout": 5, "cmd":').tolist() == [14150, 788, 220, 20, 11, 330, 8710, 788]


@pytest.mark.parametrize("name", ["qwen3", "llama3.1", "gpt-oss", "glm4.5", "kimi-k2", "qwen2.5", "gemma4", "smollm2"])
def test_an_answer_with_calls_and_no_text_has_empty_content_which_every_template_takes(load: Load, name: str) -> None:
    request = RenderRequest(messages=(user("go"), answer("", CALL)), tools=(LS,), now=NOON)
    assert "None" not in load(name).render(request)


def test_kimi_k2_may_change_lists_of_its_own_and_leaves_nothing_behind(load: Load) -> None:
    request = RenderRequest(messages=CYCLE, tools=(LS,), now=NOON)
    once = load("kimi-k2").render(request)
    assert "functions.ls:0" in once
    assert load("kimi-k2").render(request) == once


def test_a_template_that_shows_no_change_of_lists_cannot_change_one() -> None:
    with pytest.raises(TemplateFailed, match="unsafe"):
        render("{{ messages | attr('app' ~ 'end') }}{{ (messages | attr('app' ~ 'end'))('x') }}", user("hi"))


def test_hermes_3_refuses_a_conversation_without_tools_as_it_does_in_transformers(load: Load) -> None:
    assert (
        load("hermes3")
        .render(RenderRequest(messages=CYCLE, tools=(LS,), now=NOON))
        .endswith("a.txt\n</tool_response><|im_end|><|im_start|>assistant\n")
    )
    with pytest.raises(TemplateFailed, match="'NoneType' object is not iterable"):
        load("hermes3").render(RenderRequest(messages=CYCLE[:2], now=NOON))


def test_deepseek_v3_takes_arguments_as_text_only(load: Load) -> None:
    as_text = RenderRequest(messages=CYCLE, now=NOON, form=MessageForm(arguments=ArgumentsForm.STRING))
    assert CALL.arguments in load("deepseek-v3").render(as_text)
    with pytest.raises(TemplateFailed, match="can only concatenate str"):
        load("deepseek-v3").render(RenderRequest(messages=CYCLE, now=NOON))


def test_arguments_of_a_template_change_the_prompt(load: Load) -> None:
    request = RenderRequest(messages=(user("hi"),), kwargs='{"enable_thinking":false}', now=NOON)
    assert load("qwen3").render(request).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_the_generation_prompt_can_be_left_out(load: Load) -> None:
    request = RenderRequest(messages=(user("hi"),), generation=GenerationPrompt.OMIT, now=NOON)
    assert load("qwen3").render(request) == "<|im_start|>user\nhi<|im_end|>\n"


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ('{"b": 1e3, "a": "<é>"}', '{"b": 1000.0, "a": "<é>"}'),
        ("", "{}"),
        ("[1]", '"[1]"'),
        ('{"open": ', '"{\\"open\\": "'),
        ("[" * 100_000, '"' + "[" * 100_000 + '"'),
    ],
)
def test_arguments_are_an_object_where_they_are_one_and_the_text_itself_elsewhere(arguments: str, written: str) -> None:
    source = "{{ messages[0].tool_calls[0].function.arguments | tojson }}"
    assert render(source, answer("", ToolCall("", "f", arguments))) == written


def test_a_message_has_the_fields_that_engines_give_it_and_no_empty_ones() -> None:
    written = render("{{ messages | tojson }}", answer("ok", CALL, reasoning="hm"), RESULT, answer())
    assert written == (
        '[{"role": "assistant", "content": "ok", "reasoning_content": "hm", "tool_calls": [{"id": "call_1", "type": '
        '"function", "function": {"name": "ls", "arguments": {"path": "/é", "deep": 1.0}}}]}, '
        '{"role": "tool", "content": "a.txt", "tool_call_id": "call_1", "name": "ls"}, '
        '{"role": "assistant", "content": ""}]'
    )


@pytest.mark.parametrize(
    ("form", "written"),
    [
        (MessageForm(), '"a\\nb"'),
        (MessageForm(joiner=""), '"ab"'),
        (MessageForm(content=ContentForm.PARTS), '[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]'),
    ],
)
def test_text_parts_are_joined_or_listed_as_the_form_says(form: MessageForm, written: str) -> None:
    message = Message(Role.USER, (Text("a"), Text("b")))
    assert render("{{ messages[0].content | tojson }}", message, form=form) == written


@pytest.mark.parametrize(("field", "keys"), [("thinking", "role content thinking"), ("", "role content")])
def test_thinking_stands_in_the_field_that_the_template_reads(field: str, keys: str) -> None:
    form = MessageForm(reasoning_field=field)
    assert render("{{ messages[0] | join(' ') }}", answer("x", reasoning="hm"), form=form) == keys


def test_json_is_written_plainly() -> None:
    written = render("{{ messages[0].content | tojson(indent=2) }}", user("<a href='x'>&é"))
    assert written == "\"<a href='x'>&é\""


def test_special_tokens_are_variables_and_an_empty_one_is_undefined() -> None:
    assert render("{{ bos_token }}{{ pad_token is defined }}") == "<s>False"


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("a {% generation %} b {% endgeneration %} c", "a  b  c"),
        ("a {%- generation -%} b {%- endgeneration -%} c", "abc"),
        ("a\n  {% generation %}\nb\n  {% endgeneration %}\nc", "a\nb\nc"),
    ],
)
def test_generation_tags_only_touch_the_whitespace_around_them(marked: str, plain: str) -> None:
    assert render(marked) == plain


def test_a_template_that_raises_is_quoted() -> None:
    with pytest.raises(TemplateFailed) as raised:
        render("{{ raise_exception('Roles must alternate') }}", user("hi"))
    assert (raised.value.problem, raised.value.status, raised.value.param) == (
        "The chat template refused the conversation: Roles must alternate",
        400,
        "messages",
    )


@pytest.mark.parametrize("kwargs", ['{"messages":[]}', '{"tools":[]}', '{"add_generation_prompt":false}', "[]", "{"])
def test_arguments_of_a_template_that_are_no_object_or_set_our_own_variables_are_refused(kwargs: str) -> None:
    with pytest.raises(CallerError) as raised:
        render("x", kwargs=kwargs)
    assert raised.value.param == "chat_template_kwargs"


@pytest.mark.parametrize(("source", "said"), [("{% if %}", "cannot be compiled"), ("x" * 10_000_000, "10000000")])
def test_a_source_that_is_no_template_or_is_huge_is_refused(source: str, said: str) -> None:
    with pytest.raises(ModelFilesError, match=said):
        Template(source, {})
