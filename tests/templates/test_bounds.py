"""Filters and methods that could make much of little are refused before they do; all others are as they were."""

from __future__ import annotations

import tracemalloc

import pytest
from jinja2 import Environment, TemplateError

from turnstile.templates.bounds import MAX_SIZE
from turnstile.templates.sandbox import BoundedTemplate

LONG = "x" * 10_000


def render(source: str) -> str:
    return BoundedTemplate(source).render({"long": LONG, "many": [LONG] * 20_000, "lists": [list(LONG)] * 20_000})


@pytest.mark.parametrize(
    "source",
    [
        "{{ '%0999999999d' | format(1) }}",
        "{{ ('%(a)s' * 10000) | format(a=long) }}",
        "{{ ('%(a)s' * 10000) % {'a': long} }}",
        "{{ '{:>999999999}'.format(1) }}",
        "{{ ('{a}' * 10000).format(a=long) }}",
        "{{ ('{0:{w}}' * 100).format(1, w=60000000) }}",
        "{{ long | join(long) }}",
        "{{ many | join }}",
        "{{ many | map('upper') | join(d=long) }}",
        "{{ long.join(many) }}",
        "{{ long | replace('', long) }}",
        "{{ long | replace(old='x', new=long) }}",
        "{{ long.replace('x', long) }}",
        "{{ 'x' | center(999999999) }}",
        "{{ ('x\n' * 10000) | indent(60000) }}",
        "{{ ('x\n' * 10000) | indent(long) }}",
        "{{ long | wordwrap(1, wrapstring=long) }}",
        "{{ [1] | slice(99999999) | list | length }}",
        "{{ [1] | batch(linecount=99999999, fill_with=0) | list | length }}",
        "{{ lists | sum(start=[]) | length }}",
        "{{ {'a': [1]} | tojson(indent=60000000) }}",
    ],
)
def test_what_would_be_huge_is_refused_before_it_is_made(source: str) -> None:
    tracemalloc.start()
    with pytest.raises(TemplateError, match=r"too large|too far|more than"):
        render(source)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2 * MAX_SIZE


@pytest.mark.parametrize(
    "source",
    [
        "{{ '%-6s|%03d' | format('a', 7) }}",
        "{{ '{:>6}|{a}'.format('b', a='c') }}",
        "{{ ['a', 1, none] | join(', ') }}",
        "{{ [{'n': 'a'}, {'n': 'b'}] | join('-', attribute='n') }}",
        "{{ ['a', 'b'] | map('upper') | join(d='') }}",
        "{{ ', '.join(['a', 'b']) }}",
        "{{ 'a.b.c' | replace('.', '/', 1) }}",
        "{{ 'a.b.c' | replace(old='.', new='/') }}",
        "{{ 'a.b.c'.replace('.', '') }}",
        "{{ 'a' | center(5) }}|",
        "{{ 'a\nb' | indent }}",
        "{{ 'a\nb' | indent(2, true) }}",
        "{{ 'a b c' | wordwrap(1) }}",
        "{{ [1, 2, 3] | slice(2) | list }}",
        "{{ [1, 2, 3] | batch(2, 0) | list }}",
        "{{ [1, 2] | sum }}{{ [[1], [2]] | sum(start=[]) }}",
        "{{ [{'n': 1}, {'n': 2}] | sum(attribute='n') }}",
        "{{ 'see http://a.b' | urlize }}",
    ],
)
def test_what_is_small_is_as_jinja_makes_it(source: str) -> None:
    assert render(source) == Environment(autoescape=False).from_string(source).render()


@pytest.mark.parametrize("source", ["{{ range(1000) | random }}", "{{ lipsum() }}"])
def test_a_text_by_chance_is_refused(source: str) -> None:
    with pytest.raises(TemplateError, match=r"another text each time|undefined"):
        render(source)
