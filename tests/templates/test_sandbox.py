from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from jinja2 import Template, TemplateError, TemplateSyntaxError
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.sandbox import SandboxedEnvironment

from turnstile.templates import sandbox
from turnstile.templates.bounds import MAX_SIZE
from turnstile.templates.files import ModelFiles
from turnstile.templates.sandbox import BoundedTemplate

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def render(source: str, **variables: Any) -> str:
    return BoundedTemplate(source).render(variables)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}", "steps"),
        ("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}", "steps"),
        (
            "{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
            "more than",
        ),
        (
            "{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "more than",
        ),
        (
            "{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
            "more than",
        ),
        ("{{ 'x' * 10 ** 9 }}", "more than"),
        ("{{ 10 ** 9 * 'x' }}", "more than"),
        ("{{ 9 ** (9 ** 9) }}", "number"),
        ("{{ '%999999999d' % 1 }}", "width"),
        ("{{ 'x'.ljust(10 ** 9) }}", "more than"),
        ("{{ 'x' | center(999999999) }}", "more than"),
        ("{% for a in range(90000) %}{{ text }}{% endfor %}", "more than"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ raise_exception('no') }}", "no"),
    ],
)
def test_a_template_cannot_run_or_grow_without_end_or_leave_the_sandbox(source: str, said: str) -> None:
    with pytest.raises(TemplateError, match=said):
        render(source, text="x" * 10_000)


def test_a_template_that_is_endless_for_some_messages_alone_ends_soon() -> None:
    loops = "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}"
    source = f"{{% if text != 'Hello' %}}{loops}{{% endif %}}"
    with pytest.raises(TemplateError, match=f"more than {sandbox.LEAST_STEPS} steps"):
        render(source, text="zq")


@pytest.mark.parametrize(
    "source",
    [
        "{% set turnstile_steps = namespace(_taken=0, _allowed=9) %}",
        "{{ turnstile_steps.advance(-60000000) }}",
        "{{ turnstile_steps | turnstile_advance(-60000000) }}",
        "{{ [turnstile_steps] | map('turnstile_advance', -60000000) | list }}",
        "{% for turnstile_steps in [1] %}{% endfor %}",
        "{% macro turnstile_join() %}{% endmacro %}",
        "{% set \uff54urnstile_steps = namespace(_taken=0, _allowed=9) %}",
        "{% set \U0001d4c9urnstile_steps = 1 %}",
    ],
)
def test_a_template_cannot_reach_what_counts_its_steps(source: str) -> None:
    with pytest.raises(TemplateSyntaxError, match="steps are counted"):
        BoundedTemplate(source)


@pytest.mark.parametrize("much", ["numbers | sort", "-1 in numbers", "text | urlize", "numbers[1:]"])
def test_a_render_whose_few_steps_do_much_ends_by_the_time_it_computes(
    monkeypatch: pytest.MonkeyPatch, much: str
) -> None:
    monkeypatch.setattr(sandbox, "MAX_CPU_S", 0.05)
    source = (
        f"{{% set numbers = range(60000) | list %}}{{% for a in range(60000) %}}{{% set b = {much} %}}{{% endfor %}}"
    )
    with pytest.raises(sandbox.Endless, match="computed for more than"):
        render(source, text="a.b " * 10_000)


def test_what_operators_make_in_a_loop_is_counted_too() -> None:
    with pytest.raises(TemplateError, match="steps"):
        render("{% set l = range(90000) | list %}{% for a in range(9000) %}{% set l = l + l %}{% endfor %}")
    with pytest.raises(TemplateError, match="steps"):
        render("{% for a in range(9000) %}{% set s = text * 5000 + text %}{% endfor %}", text="x" * 10_000)


def test_steps_suffice_for_loops_over_all_messages_in_a_loop_over_all_and_over_each_character() -> None:
    pairs = "{% for a in messages %}{% for b in messages %}{% endfor %}{% endfor %}"
    characters = "{% for message in messages %}{% for c in message.content %}{% endfor %}{% endfor %}"
    assert render(pairs + characters, messages=[{"content": "x" * 1000}] * 600) == ""


def test_macros_that_call_themselves_without_end_are_stopped() -> None:
    with pytest.raises((RecursionError, SecurityError)):
        render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")


def test_items_of_a_mapping_are_found_as_jinja_finds_them_behind_its_own_attributes() -> None:
    source = "{{ m.role }},{{ m.items is callable }},{{ m.gone is defined }},{{ m.__class__ is defined }}"
    fields = {"role": "user", "items": "mine", "__class__": "mine"}
    assert render(source, m=fields) == SandboxedEnvironment().from_string(source).render(m=fields)
    assert render("{{ m.role }},{{ m.items is callable }}", m=fields) == "user,True"


def test_a_text_that_an_operator_makes_is_bounded() -> None:
    with pytest.raises(SecurityError, match="characters"):
        render("{{ (a + a) | length }}", a="x" * (MAX_SIZE // 2 + 1))


def test_counting_steps_changes_no_text() -> None:
    source = (
        "{% macro m(a) %}<{{ a }}{% if caller %}{{ caller() }}{% endif %}>{% endmacro %}"
        "{% for x in [1, 2, 3] if x != 2 %}{{ loop.index }}/{{ loop.length }}:{{ m(x) ~ '!' ~ none ~ y }}"
        "{% if not loop.last %}, {% endif %}{% else %}empty{% endfor %}"
        "{% for x in [] %}{% else %}empty{% endfor %}{% for x in [1, 2] %}{% if x == 1 %}{% continue %}{% endif %}"
        "{{ x }}{% endfor %}{% call m(4) %}body{% endcall %}"
    )
    assert render(source) == "1/2:<1>!None, 2/2:<3>!Noneempty2<4body>"


def test_a_conversation_of_many_messages_is_far_from_the_bound() -> None:
    source = "{% for m in messages %}{% for n in messages %}{% endfor %}{{ m }}{% endfor %}"
    said = [{"content": f"{at}"} for at in range(700)]
    assert render(source.replace("{{ m }}", "{{ m.content }}"), messages=said) == "".join(map(str, range(700)))
    assert sandbox.MAX_STEPS > 1000**2


def test_generation_tags_become_conditions_and_keep_their_signs() -> None:
    source = "{%- generation -%}x{%+ endgeneration +%}{% generation %}"
    assert sandbox.without_generation_tags(source) == "{%- if true -%}x{%+ endif +%}{% if true %}"


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ("", '{"b": "<é>", "a": [1]}'),
        ("ensure_ascii=true, sort_keys=true", '{"a": [1], "b": "<\\u00e9>"}'),
        ("separators=(',', ':')", '{"b":"<é>","a":[1]}'),
        ("indent=1", '{\n "b": "<é>",\n "a": [\n  1\n ]\n}'),
    ],
)
def test_tojson_takes_what_transformers_lets_it_take(arguments: str, written: str) -> None:
    source = f"{{{{ value | tojson({arguments}) }}}}"
    assert render(source, value={"b": "<é>", "a": [1]}) == written


FAMILIES = [
    "qwen3", "qwen3.5", "llama3.1", "deepseek-v3.1", "gpt-oss", "glm4.5", "qwen2.5", "qwen3-coder", "hermes3",
    "kimi-k2", "gemma4", "smollm2",
]  # fmt: skip


def as_transformers_compiles(source: str) -> Template:
    """The environment of transformers' `_compile_jinja_template`, without bounds."""

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, **options: Any) -> str:
        return json.dumps(value, **{"ensure_ascii": False, **options})

    environment = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    return environment.from_string(source)


@pytest.mark.families
@pytest.mark.parametrize("name", FAMILIES)
def test_bounds_change_no_text_of_a_real_template(family_files: Callable[[str], ModelFiles], name: str) -> None:
    source = family_files(name).chat_template
    function = {
        "name": "f",
        "description": "d",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
    }
    variables: dict[str, Any] = {
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": {"a": "b"}}}
                ],
            },
            {"role": "tool", "content": "r", "tool_call_id": "abcdefghi", "name": "f"},
        ],
        "tools": [{"type": "function", "function": function}],
        "add_generation_prompt": True,
        "bos_token": "<s>",
        "strftime_now": NOON.strftime,
    }
    try:
        expected = as_transformers_compiles(source).render(copy.deepcopy(variables))
    except TypeError:
        # DeepSeek V3.1 joins the arguments to a text.
        variables["messages"][2]["tool_calls"][0]["function"]["arguments"] = '{"a": "b"}'
        expected = as_transformers_compiles(source).render(copy.deepcopy(variables))
    assert render(source, **variables) == expected
