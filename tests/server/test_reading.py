"""Who reads answers."""

from __future__ import annotations

import msgspec
import pytest

from turnstile.engines.base import Missing
from turnstile.engines.recorded import CAPABILITIES
from turnstile.errors import CallerError
from turnstile.parsing.formats import ENGINES_OWN, AnswerFormat
from turnstile.server.reading import format_of, kept_name, read_by
from turnstile.templates.facts import serve

READS = msgspec.structs.replace(CAPABILITIES, engine="vllm", reads_answers=True)
TOOLS = "{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture
def with_template(family_files):
    """A model with a template of one's own: its files, and served."""

    def _with(template):
        files = msgspec.structs.replace(family_files("qwen3"), chat_template=template, tool_use_template="")
        return files, serve(files, model="m", stop_ids=frozenset())

    return _with


def test_a_format_that_turnstile_knows_it_reads_itself(family_files):
    files = family_files("qwen3")
    served = serve(files, model="m", stop_ids=frozenset())
    found = format_of("", files)
    assert found.tool_calls == "hermes"
    assert read_by("", found, READS, served) == (found, "")


def test_a_format_that_it_does_not_know_is_the_engine_s_to_read(with_template):
    files, served = with_template(TOOLS)
    chosen, notice = read_by("", format_of("", files), READS, served)
    assert chosen == ENGINES_OWN
    assert notice == "The template writes tool calls as Turnstile does not: vllm's parser reads them"
    assert kept_name("", chosen) == "engine"


@pytest.mark.parametrize(
    ("template", "name", "engine"),
    [
        (TOOLS, "", CAPABILITIES),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "", READS),
        (TOOLS, "none", READS),
    ],
)
def test_calls_stay_text_where_nobody_reads_them_or_nobody_asks_for_them(with_template, template, name, engine):
    files, served = with_template(template)
    found = format_of(name, files)
    assert read_by(name, found, engine, served) == (AnswerFormat(None, "none"), "")
    assert kept_name(name, found) == name


def test_an_engine_that_cannot_be_asked_is_not_asked(with_template):
    files, served = with_template(TOOLS)
    lacking = msgspec.structs.replace(CAPABILITIES, missing=(Missing("its own parsers", "Calls stay text", "Turn on"),))
    for engine, remedy in ((CAPABILITIES, "Leave --answer-format out"), (lacking, "Turn on")):
        with pytest.raises(CallerError) as refused:
            read_by("engine", format_of("engine", files), engine, served)
        assert (refused.value.code, refused.value.remedy) == ("format_not_readable", remedy)
