"""A hostile template, and hostile content in a good one: neither gets out of the sandbox.

The corpus follows what is published on template injection for Jinja2, and adds what Turnstile itself gives a template.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment, TemplateError, TemplateSyntaxError

from turnstile.conversation import Message, Role, Text
from turnstile.errors import TurnstileError
from turnstile.server.certificates import refuse_slow_template
from turnstile.server.local_files import read_model_folder
from turnstile.templates.render import RenderRequest, Template, TemplateFailed
from turnstile.templates.sandbox import BoundedTemplate

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
PLANTED = "planted-in-the-environment"
ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__']['__mro__'][1]['__subclasses__']() }}",
    "{{ messages.__class__.__base__.__subclasses__()[0].__init__.__globals__ }}",
    "{{ '' | attr('__class__') }}",
    "{{ '' | attr('\\x5f\\x5fclass\\x5f\\x5f') }}",
    "{{ '' | attr(['_' * 2, 'class', '_' * 2] | join) }}",
    "{{ messages | map(attribute='__class__') | list }}",
    "{{ messages | map('attr', '__class__') | list }}",
    "{{ [''] | map('attr', '__class__') | map('attr', '__mro__') | list }}",
    "{{ messages | groupby('__class__') }}",
    "{{ messages | sort(attribute='__class__.__name__') }}",
    "{{ [''] | sum(attribute='__class__', start='') }}",
    "{{ [''] | selectattr('__class__') | list }}",
    "{{ [''] | rejectattr('__nothing__') | map(attribute='__class__') | list }}",
    "{{ [''] | unique(attribute='__class__') | list | map(attribute='__doc__') | list }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ '{a.__class__}'.format(a='') }}",
    "{{ '{0.__class__}'.format_map({'0': ''}) }}",
    "{{ ('{0.__class__}' | format('')) }}",
    "{{ '%s' | format(''.__class__) }}",
    "{{ cycler.__init__.__globals__.os.environ }}",
    "{{ joiner.__init__.__globals__ }}",
    "{{ namespace.__init__.__globals__.sys.modules }}",
    "{{ lipsum.__globals__['os'].environ }}",
    "{{ dict.mro() }}",
    "{{ dict.__base__.__subclasses__() }}",
    "{{ range.__class__.__base__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context.environment }}",
    "{{ self._TemplateReference__context['os'] }}",
    "{{ self.__dict__ }}",
    "{% for a in [1] %}{{ loop.__class__.__init__.__globals__ }}{{ loop._iterator.gi_frame }}{% endfor %}",
    "{% macro m() %}{{ caller.__globals__ }}{% endmacro %}{% call m() %}{% endcall %}{{ m.__class__ }}",
    "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}{{ m._environment }}",
    "{{ raise_exception.__globals__ }}",
    "{{ raise_exception.__code__ }}",
    "{{ strftime_now.__globals__ }}{{ strftime_now.__closure__ }}",
    "{{ strftime_now.__wrapped__.__globals__ }}",
    "{{ strftime_now('%Y').__class__.__mro__ }}",
    "{{ messages.append.__self__.__class__ }}",
    "{{ [].append.__func__ }}{{ ''.join.__self__.__class__ }}",
    "{{ (messages | map('upper')).gi_frame.f_globals }}",
    "{{ (messages | map('upper')).gi_code }}{{ (messages | select).ag_frame }}",
    "{{ messages | tojson(indent={}.__class__) }}",
    "{{ namespace(a=1).__class__ }}{{ namespace(a=1)._Namespace__attrs }}",
    "{% set n = namespace() %}{% set n.__class__ = 1 %}{{ n.__class__.__mro__ }}",
    "{{ undefined_name.__class__.__mro__ }}{{ undefined_name._undefined_exception.__mro__ }}",
    "{{ undefined_name._fail_with_undefined_error.__globals__ }}",
    "{{ config }}{{ request.environ }}{{ get_flashed_messages.__globals__ }}{{ url_for.__globals__ }}",
    "{% import 'os' as os %}{{ os.environ }}",
    "{% from 'os' import environ %}{{ environ }}",
    "{% include '/etc/passwd' %}",
    "{% include '../../../../etc/passwd' ignore missing %}",
    "{% extends '/etc/passwd' %}",
    "{{ ''.encode().__class__ }}{{ 1 .__class__ }}{{ (1).real.__class__ }}",
    "{{ ''.translate.__self__ }}{{ ''.maketrans.__module__ }}{{ [].__init__.__objclass__ }}",
    "{% block a scoped %}{{ self.a.__func__ }}{{ self.a._context }}{% endblock %}",
    "{% filter attr('__class__') %}x{% endfilter %}",
    "{% set x = [] %}{{ x.extend.__call__.__class__ }}",
    "{{ messages.__reduce_ex__(2) }}{{ messages.__reduce__() }}",
    "{{ messages.__getattribute__('__class__') }}",
    "{{ (''.__add__).__self__.__class__ }}",
    "{% if ''.__class__ %}<class{% endif %}",
    "{{ messages[0].__init__ }}{{ messages[0].items.__self__.__class__ }}",
]
GOT_OUT = (
    PLANTED,
    "<class",
    "<function",
    "<bound method",
    "<built-in",
    "<module",
    "object at 0x",
    "root:",
    "PATH",
    "mro",
)
"""Words that show something of Python, or of this machine."""


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(os.environ, "PLANTED", PLANTED)
    yield


def given() -> dict[str, Any]:
    """What a template is given for a render."""
    return {
        "messages": [{"role": "user", "content": "hi"}],
        "strftime_now": NOON.strftime,
        "add_generation_prompt": True,
    }


@pytest.mark.parametrize("source", ESCAPES)
@pytest.mark.parametrize("mutating", ["", "{% set own = [] %}{% set _ = own.append(1) %}"], ids=["frozen", "mutating"])
def test_no_template_leaves_the_sandbox(source: str, mutating: str) -> None:
    try:
        told = BoundedTemplate(mutating + source).render(given())
    except (TemplateError, TypeError, AttributeError, ValueError, KeyError, IndexError) as refused:
        told = str(refused) if not isinstance(refused, TemplateSyntaxError) else ""
        told = told.replace("is not safely callable", "")
        assert PLANTED not in told
        return
    assert [word for word in GOT_OUT if word in told] == []


def test_what_the_corpus_looks_for_is_there_outside_the_sandbox() -> None:
    without = Environment(autoescape=False)
    told = without.from_string("{{ cycler.__init__.__globals__.os.environ }}{{ ''.__class__.__mro__ }}").render()
    assert PLANTED in told
    assert "<class" in told


@pytest.mark.parametrize("source", ESCAPES[:12])
def test_a_template_that_fails_to_get_out_fails_as_a_template(source: str) -> None:
    request = RenderRequest(messages=(Message(role=Role.USER, parts=(Text("hi"),)),), now=NOON)
    try:
        told = Template(source, {}).render(request)
    except TemplateFailed as failed:
        told = str(failed)
    assert PLANTED not in told


INJECTIONS = [
    "{{ 7 * 191 }}", "{% raw %}", "{% endraw %}{{ 7 * 191 }}", "{#", "{{ ''.__class__ }}",
    "{% include '/etc/passwd' %}", "${7*191}", "#{7*191}", "<%= 7*191 %>", "{% generation %}",
    "{{ raise_exception('out') }}", "{%- set messages = [] -%}",
]  # fmt: skip


@pytest.mark.parametrize("said", INJECTIONS)
def test_what_an_agent_says_is_never_a_program(keyless: Any, said: str) -> None:
    agent = keyless.agent()
    keyless.script("A<|im_end|>")
    tool = {"type": "function", "function": {"name": "f", "description": said, "parameters": {"type": "object"}}}
    answer = agent.say({"role": "system", "content": said}, {"role": "user", "content": said}, tools=[tool])
    prompt = keyless.text(answer.prompt)
    assert answer.status == 200
    assert prompt.count(said) >= 2
    assert "1337" not in prompt


@pytest.mark.parametrize(
    "arguments",
    [
        {"turnstile_steps": 1}, {"turnstile_join": 1}, {"namespace": 1, "range": [], "dict": {}},
        {"raise_exception": "x"}, {"strftime_now": "x"}, {"messages": []}, {"tools": []}, {"loop": 1, "self": 2},
        {"add_generation_prompt": False}, {"bos_token": "{{ 7 * 191 }}"}, {"a" * 10_000: 1}, {"": 1},
        {"__class__": 1}, {"x": {"__class__": {"__mro__": 1}}},
        {"enable_thinking": {"a": [1] * 10_000}},
    ],
)  # fmt: skip
def test_arguments_for_the_template_are_values_and_never_break_anything_of_ours(
    keyless: Any, arguments: dict[str, Any]
) -> None:
    agent = keyless.agent()
    keyless.fake.answer = lambda _: keyless.ids("A<|im_end|>")
    try:
        answer = agent.say("hi", chat_template_kwargs=arguments)
        assert answer.status in (200, 400)
        if answer.status == 200:
            assert keyless.text(answer.prompt).count("hi") >= 1
            assert "1337" not in keyless.text(answer.prompt)
        assert "Turnstile failed inside" not in json.dumps(answer.json)
        assert agent.say("again").status == 200
    finally:
        keyless.fake.forget()


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ turnstile_steps }}", "{% for", "{% end",
    ],
)  # fmt: skip
def test_a_template_that_can_do_nothing_good_stops_the_start(tools_folder: Path, source: str) -> None:
    with pytest.raises(TurnstileError) as refused:
        refuse_slow_template(read_model_folder(tools_folder, source))
    assert PLANTED not in str(refused.value)
