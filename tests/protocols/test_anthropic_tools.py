from __future__ import annotations

import json

import pytest

from turnstile.conversation import ToolSpec

SCHEMA = {"type": "object", "properties": {"p": {"type": "string"}}}


def test_a_tool_is_declared_as_chat_clients_declare_it(messages_call):
    tool = {"name": "ls", "input_schema": SCHEMA, "description": "Lists.", "cache_control": {"type": "ephemeral"}}
    (spec,) = messages_call(tools=[tool]).tools
    function = {"name": "ls", "description": "Lists.", "parameters": SCHEMA}
    assert spec.name == "ls"
    assert json.dumps(json.loads(spec.declaration)) == json.dumps({"type": "function", "function": function})


def test_what_is_not_said_is_not_declared(messages_call):
    assert messages_call(tools=[{"name": "ls", "type": "custom", "input_schema": {}}]).tools == (
        ToolSpec("ls", '{"type":"function","function":{"name":"ls","parameters":{}}}'),
    )


def test_strict_is_handed_on(messages_call):
    (spec,) = messages_call(tools=[{"name": "ls", "input_schema": {}, "strict": True}]).tools
    assert json.loads(spec.declaration)["function"]["strict"] is True


def test_no_tools_and_an_empty_list_are_one(messages_call):
    assert messages_call(tools=[]).tools == messages_call(tools=None).tools == messages_call().tools == ()


@pytest.mark.parametrize(
    ("tool", "name", "argument"),
    [
        ({"type": "bash_20250124", "name": "bash"}, "bash", "command"),
        (
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
            "str_replace_based_edit_tool",
            "path",
        ),
        ({"type": "text_editor_20250124", "name": "str_replace_editor"}, "str_replace_editor", "old_str"),
        ({"type": "computer_20250124", "name": "computer"}, "computer", "coordinate"),
        ({"type": "memory_20250818", "name": "memory"}, "memory", "old_path"),
        ({"type": "bash_20250124"}, "bash", "restart"),
    ],
)
def test_a_tool_that_the_client_runs_is_declared_in_full(messages_call, tool, name, argument):
    (spec,) = messages_call(tools=[tool]).tools
    function = json.loads(spec.declaration)["function"]
    assert (spec.name, function["name"]) == (name, name)
    assert argument in function["parameters"]["properties"]
    assert function["description"]


def test_the_size_of_the_screen_is_told(messages_call):
    tool = {"type": "computer_20250124", "name": "computer", "display_width_px": 1024, "display_height_px": 768}
    (spec,) = messages_call(tools=[tool]).tools
    assert "1024 pixels wide and 768 high" in spec.declaration


@pytest.mark.parametrize(
    "kind",
    [
        "web_search_20250305", "web_fetch_20250910", "code_execution_20250825", "tool_search_tool_bm25_20251119",
        "mcp_toolset", "computer_toolset_20260801", "browser_toolset_20260801", "new_thing",
    ],
)  # fmt: skip
def test_a_tool_that_anthropics_servers_run_is_refused_by_name(messages_refusal, kind):
    status, code, param, problem = messages_refusal(tools=[{"type": kind, "name": "x"}])
    assert (status, code, param) == (400, "unsupported_parameter", "tools[0]")
    assert kind in problem


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"input_schema": {}}, "tools[0].name"),
        ({"name": ""}, "tools[0].name"),
        ({"name": "ls"}, "tools[0].input_schema"),
        ({"name": "ls", "input_schema": [1]}, "tools[0].input_schema"),
        (7, "tools[0]"),
    ],
)
def test_a_tool_that_is_none_is_refused_by_field(messages_refusal, tool, param):
    assert messages_refusal(tools=[tool])[2] == param


def test_a_deferred_tool_is_offered_once_a_result_has_referred_to_it(messages_call):
    tools = [{"name": "ToolSearch", "input_schema": {}}, {"name": "Far", "input_schema": {}, "defer_loading": True}]
    reference = {"type": "tool_reference", "tool_name": "Far"}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [reference]}
    before = messages_call(tools=tools)
    after = messages_call(tools=tools, messages=[{"role": "user", "content": [result]}])
    assert [spec.name for spec in before.tools] == ["ToolSearch"]
    assert [spec.name for spec in after.tools] == ["ToolSearch", "Far"]
    assert after.messages[0].text == "The tool `Far` can be called now."
