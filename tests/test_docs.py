"""The documentation names what there is, and nothing that is not there."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import click
import pytest
import typer
from starlette.applications import Starlette
from starlette.routing import Route

import turnstile
from turnstile.cli import app
from turnstile.client import Client, RolloutHandle
from turnstile.config import Settings
from turnstile.conversation import Message, Role, Text, ToolCall
from turnstile.engines import EngineKind
from turnstile.parsing.formats import NO_TOOL_CALLS
from turnstile.parsing.toolcalls import FORMATS
from turnstile.protocols import DIALECTS
from turnstile.protocols.chat_request import _REFUSED, _TRANSPORT, ChatRequest
from turnstile.reports.drift import Difference, Drift, DriftKind
from turnstile.server.app import build_app
from turnstile.store import RolloutSummary
from turnstile.templates.facts import serve
from turnstile.templates.files import ModelFiles
from turnstile.templates.render import GenerationPrompt
from turnstile.templates.served import Scene, Served, render
from turnstile.tokens import IdRun, first_difference

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
COMMANDS = cast("dict[str, click.Command]", cast("click.Group", typer.main.get_command(app)).commands)


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _not_in(page: Path, names: Iterator[str] | list[str]) -> list[str]:
    """Names that stand nowhere in code on a page."""
    said = set(re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")))
    words = {word for span in said for word in re.split(r"[^\w./{}:-]+", span)} | said
    return [name for name in names if name not in words]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_section_with_all_its_options(name: str) -> None:
    sections = (REFERENCE / "cli.md").read_text(encoding="utf-8").split("\n## ")
    section = next(each for each in sections if each.startswith(f"`turnstile {name}"))
    options = sorted(option for option in _options(name) if option.startswith("-"))
    missing = [option for option in options if not re.search(rf"`{option}[` ]", section)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_page_shows_only_commands_and_options_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shown = re.findall(r"^(?:\$ )?turnstile ([a-z]+)(.*(?:\\\n.*)*)$", text, re.MULTILINE)
    shown += re.findall(r"`turnstile ([a-z]+)\b([^`\n]*)`", text)
    unknown = [
        f"{name} {option}"
        for name, rest in shown
        for option in (re.findall(r"(?<=\s)(--?[a-z][a-z-]*)", rest) or [""])
        if name not in COMMANDS or (option and option not in _options(name))
    ]
    assert unknown == []


def _options(name: str) -> set[str]:
    """Of the command, and of those below it if it is a group."""
    command = COMMANDS[name]
    below = cast("dict[str, click.Command]", getattr(command, "commands", {})).values()
    return {option for each in (command, *below) for parameter in each.params for option in parameter.opts}


def test_every_setting_is_named() -> None:
    assert _not_in(REFERENCE / "settings.md", list(Settings.__struct_fields__)) == []


def test_every_environment_variable_is_named() -> None:
    variables = [
        str(parameter.envvar) for each in COMMANDS.values() for parameter in each.params if parameter.envvar is not None
    ]
    assert _not_in(REFERENCE / "settings.md", [*variables, "XDG_CACHE_HOME"]) == []


def test_every_engine_kind_and_answer_format_is_named() -> None:
    names = [*EngineKind, *(each.name for each in FORMATS), NO_TOOL_CALLS]
    assert _not_in(REFERENCE / "cli.md", names) == []


def test_every_route_is_named() -> None:
    unused = cast("Any", Mock())
    built: Starlette = build_app(unused, unused, unused, unused, Settings(engine="embedded", store=Path()))
    routes = [
        f"{method} {route.path.replace(':path', '')}"
        for route in built.routes
        if isinstance(route, Route)
        for method in sorted((route.methods or set()) - {"HEAD"})
    ]
    assert len(routes) > 10
    assert _not_in(REFERENCE / "http.md", routes) == []


def test_every_path_of_a_dialect_is_named() -> None:
    page = (REFERENCE / "http.md").read_text(encoding="utf-8")
    assert [path for dialect in DIALECTS for path in dialect.paths if path not in page] == []


def test_every_field_of_a_chat_completion_is_named() -> None:
    names = [*ChatRequest.__struct_fields__, *_TRANSPORT, *_REFUSED]
    assert _not_in(REFERENCE / "http.md", names) == []


def test_every_field_of_a_listed_rollout_is_named() -> None:
    assert _not_in(REFERENCE / "http.md", list(RolloutSummary.__struct_fields__)) == []


def test_every_public_name_is_named() -> None:
    page = (REFERENCE / "python.md").read_text(encoding="utf-8")
    handle = inspect.getsource(RolloutHandle.__init__)
    members = [
        *(f"client.{name}" for name in [*_public(Client), *re.findall(r"self\.([a-z]\w*) =", _init_of(Client))]),
        *(f"rollout.{name}" for name in [*_public(RolloutHandle), *re.findall(r"self\.([a-z]\w*) =", handle)]),
        *(f"turnstile.{name}" for name in turnstile.__all__),
    ]
    assert [name for name in members if name not in page] == []


def _public(kind: type) -> list[str]:
    return [name for name, member in vars(kind).items() if inspect.isfunction(member) and not name.startswith("_")]


def _init_of(kind: type) -> str:
    return inspect.getsource(cast("Callable[..., None]", vars(kind)["__init__"]))


@pytest.mark.parametrize("name", ["rollout", "finish"])
def test_every_argument_of_a_rollout_is_named(name: str) -> None:
    method = getattr(Client if name == "rollout" else RolloutHandle, name)
    arguments = [each for each in inspect.signature(method).parameters if each != "self"]
    assert _not_in(REFERENCE / "python.md", arguments) == []


def _error_codes() -> set[str]:
    codes: set[str] = set()
    for module in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            match node:
                case ast.keyword(arg="code", value=value) | ast.Assign(targets=[ast.Name(id="code")], value=value):
                    codes |= {
                        each.value
                        for each in ([value.body, value.orelse] if isinstance(value, ast.IfExp) else [value])
                        if isinstance(each, ast.Constant) and isinstance(each.value, str)
                    }
                case _:
                    pass
    return {code for code in codes if code and not re.fullmatch(r"[EW]\d{3}", code)}


def test_every_error_code_is_explained_once_and_no_other() -> None:
    rows = re.findall(
        r"^\| ((?:`\w+`(?:, )?)+) \|", (REFERENCE / "errors.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    explained = [code for row in rows for code in re.findall(r"`(\w+)`", row)]
    assert sorted(explained) == sorted(_error_codes())


def test_the_drift_report_is_explained_field_by_field() -> None:
    names = [*Drift.__struct_fields__, *Difference.__struct_fields__, *DriftKind]
    assert _not_in(ROOT / "docs" / "read-the-drift-report.md", names) == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s#]+)(?:#[\w-]*)?\)", page.read_text(encoding="utf-8"))
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert broken == []


def test_every_decision_that_code_refers_to_is_written() -> None:
    sources = [path for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py")]
    numbers = {
        number
        for source in sources
        for number in re.findall(r"docs/decisions/(\d{4})", source.read_text(encoding="utf-8"))
    }
    written = {page.name[:4] for page in (ROOT / "docs" / "decisions").glob("*.md")}
    assert numbers - written == set()


@pytest.fixture(scope="module")
def qwen3(family_files: Callable[[str], ModelFiles]) -> Served:
    """The template and tokenizer of the README's examples."""
    return serve(family_files("qwen3"), model="qwen3")


QUESTION = Message(Role.USER, (Text("What is in the folder?"),))
RUN = (
    '{"type":"function","function":{"name":"run","description":"Run a command.","parameters":{"type":"object",'
    '"properties":{"cmd":{"type":"string"},"timeout":{"type":"integer"}},"required":["cmd"]}}}'
)


@pytest.mark.families
def test_the_readme_spells_texts_as_the_tokenizer_does(qwen3: Served) -> None:
    def ids(*texts: str) -> list[int]:
        return [token_id for text in texts for token_id in qwen3.tokenizer.encode(text).tolist()]

    rows = {"two line breaks": ("\n", "\n"), "` Plutor`": (" Plut", "or")}
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, pieces in rows.items():
        assert f"| {name} | `{ids(*pieces)}` | `{ids(''.join(pieces))}` |" in page


@pytest.mark.families
def test_the_readme_counts_the_ids_that_a_template_moves(qwen3: Served) -> None:
    call = '<tool_call>\n{"name": "run", "arguments": {"timeout":5,"cmd":"ls  -la"}}\n</tool_call><|im_end|>'
    called = Message(Role.ASSISTANT, calls=(ToolCall("c1", "run", '{"timeout":5,"cmd":"ls  -la"}'),))
    result = Message(Role.TOOL, (Text("a.txt"),), call_id="c1")
    thought = "<think>\nI saw three files.\n</think>\n\nThree files.<|im_end|>"
    answered = Message(Role.ASSISTANT, (Text("Three files."),), reasoning="I saw three files.")

    assert _moved(qwen3, (RUN,), call, (called, result)) == (25, 11)
    assert _moved(qwen3, (), thought, (answered, Message(Role.USER, (Text("Which?"),)))) == (13, 13)


def _moved(served: Served, tools: tuple[str, ...], sampled: str, then: tuple[Message, ...]) -> tuple[int, int]:
    """How many ids an answer has, and how many of them a re-rendered history has no more."""
    scene = Scene((), tools, "{}", datetime(2026, 12, 1, tzinfo=UTC))

    def ids(*messages: Message) -> IdRun:
        return served.tokenizer.encode(render(served, scene, messages, GenerationPrompt.ADD))

    answer = served.tokenizer.encode(sampled)
    held = ids(QUESTION) + answer
    at = first_difference(held, ids(QUESTION, *then))
    assert at is not None
    return len(answer), len(held) - at
