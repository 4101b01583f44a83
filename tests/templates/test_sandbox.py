from __future__ import annotations

from typing import Any

import pytest
from jinja2 import TemplateError
from jinja2.exceptions import SecurityError

from turnstile.templates import sandbox
from turnstile.templates.sandbox import BoundedTemplate


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


def test_macros_that_call_themselves_without_end_are_stopped() -> None:
    with pytest.raises((RecursionError, SecurityError)):
        render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")


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
    assert render(source, messages=list(range(1000))) == "".join(map(str, range(1000)))
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
