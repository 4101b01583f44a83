"""Real tokenizers and templates for tests, fetched on first use and then cached."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstile.config import Settings
from turnstile.engines import tools_template
from turnstile.engines.smollm import say_nothing
from turnstile.server.local import serving
from turnstile.store import Journal
from turnstile.templates.files import ModelFiles
from turnstile.templates.tokenizer import Tokenizer

# The fakes are no package, stand in for programs that know nothing of Turnstile, and share a module.
sys.path.append(str(Path(__file__).parent / "fakes"))

FETCH = Path(__file__).parent / "families" / "fetch.py"
FAMILY_FIXTURES = frozenset({"family", "family_files", "package_file"})
STOPS = ("<|im_end|>", "<|eot_id|>", "<|end_of_text|>")
"""Where the fake engine ends an answer, whatever the family."""


class Families:
    """Where families lie, and why some could not be had; asks only once for each."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}

    def run(self, *arguments: str) -> Path:
        done = subprocess.run([sys.executable, str(FETCH), *arguments], stdout=subprocess.PIPE, text=True, check=True)
        answer = json.loads(done.stdout)
        self.failed |= answer["failed"]
        return Path(answer["folder"])

    def path(self, name: str, *arguments: str) -> Path:
        path = self.run(*arguments) / name if name not in self.failed else Path(name)
        if name in self.failed:
            pytest.skip(self.failed[name])
        return path


FAMILIES = Families()
collect_ignore = [] if os.environ.get("TURNSTILE_ENGINES") == "real" else ["engines_real"]
"""Tests that need an installation of 4 GB and minutes to start (`make engines`)."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch before the first test, whose time limit is not meant for downloads, and where progress is seen."""
    if session.config.option.collectonly:
        return
    if any(FAMILY_FIXTURES.intersection(getattr(item, "fixturenames", ())) for item in session.items):
        capture = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            FAMILIES.run("--default")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep how the run ended: what only lost a test can be told from what fell over."""
    if session.config.cache is not None:
        session.config.cache.set("turnstile/ended", int(exitstatus))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests measured (`record_property("figures", ...)`), whichever process they ran in."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    figures = [
        (report.nodeid, figure) for report in reports for name, figure in report.user_properties if name == "figures"
    ]
    if figures:
        terminalreporter.section("figures")
        for nodeid, figure in figures:
            terminalreporter.write_line(f"{nodeid}: {figure}")


@pytest.fixture(scope="session")
def family() -> Callable[[str], Path]:
    """A model folder by family name; skips, with the reason, where it cannot be had."""
    return cache(lambda name: FAMILIES.path(name, name))


@pytest.fixture(scope="session")
def family_files(family: Callable[[str], Path]) -> Callable[[str], ModelFiles]:
    """What a family's folder says."""

    @cache
    def files(name: str) -> ModelFiles:
        folder = family(name)
        return ModelFiles.from_texts(
            tokenizer_json=(folder / "tokenizer.json").read_text(encoding="utf-8"),
            tokenizer_config_json=(folder / "tokenizer_config.json").read_text(encoding="utf-8"),
            chat_template=(folder / "chat_template.jinja").read_bytes().decode(),
            generation_config_json=(folder / "generation_config.json").read_text(encoding="utf-8"),
        )

    return files


@pytest.fixture(scope="session")
def package_file() -> Callable[[str, str], Path]:
    """A file of a package of `tests/families/packages.py`, by the package's key and the file's name."""
    return cache(lambda package, name: FAMILIES.path(name, "--file", package, name))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """The journal of an empty store, which is the test's folder."""
    journal = Journal.open(tmp_path)
    yield journal
    journal.close()


def by_path(name: str) -> Any:
    """A module of `tests/engines_real`, which is no package; its names are too common for `sys.path`."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "engines_real" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def fakes() -> Any:
    """The module of the fake llama.cpp server."""
    return import_module("llamacpp_fake")


@pytest.fixture(scope="session")
def load_fake() -> Callable[[str], Any]:
    """The module of any fake, by its file's name."""
    return import_module


@pytest.fixture(scope="session")
def vllm_fakes() -> Any:
    """The module of the fake vLLM server."""
    return import_module("vllm_fake")


@pytest.fixture
def receiver() -> Iterator[Any]:
    """An OTLP collector that keeps what it is sent."""
    with import_module("otlp_receiver").receiving() as made:
        yield made


@pytest.fixture(scope="session")
def wires() -> Any:
    """The module with the agent's and the runner's side of a server over the fake."""
    return import_module("wired")


@pytest.fixture(scope="session")
def seeing() -> Any:
    """The module with an engine at the seam that is shown images."""
    return import_module("seeing")


@pytest.fixture(scope="session")
def responding() -> Any:
    """The module with an agent that speaks OpenAI Responses."""
    return import_module("responding")


@pytest.fixture(scope="session")
def speaking() -> Any:
    """The module with one conversation in every dialect."""
    return import_module("speaking")


@pytest.fixture(scope="session")
def toy() -> Any:
    """The module of a toy language model, and of talks that it recorded."""
    return import_module("toy_model")


@pytest.fixture(scope="session")
def retelling() -> Any:
    """The module with what clients of each dialect do to an answer that they bring back."""
    return import_module("retelling")


@pytest.fixture(scope="session")
def tools_folder(family: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2's tokenizer with the ChatML template that has tools: the smallest model folder that can do everything."""
    folder = tmp_path_factory.mktemp("smollm2-tools")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (folder / name).write_bytes((family("smollm2") / name).read_bytes())
    (folder / "chat_template.jinja").write_text(tools_template(), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tokenizers_of() -> Callable[[Path], Tokenizer]:
    """A model folder's tokenizer, read once."""
    return cache(lambda folder: Tokenizer.from_json((folder / "tokenizer.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def wire_up(
    fakes: Any, wires: Any, tokenizers_of: Callable[[Path], Tokenizer], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Any]:
    """Starts a Turnstile over a fake engine of its own: a context manager with any setting replaced."""

    @contextmanager
    def wire_up(folder: Path, stops: Iterable[str], **changes: object) -> Generator[Any]:
        tokenizer = tokenizers_of(folder)
        special = frozenset(token.id for token in tokenizer.added if token.special)
        eos = frozenset(found for stop in stops if (found := tokenizer.id_of(stop)) is not None)
        fake = fakes.LlamaFake(wires.Rows(tokenizer), special=special, eos=eos, model="m")
        with ExitStack() as engine:
            url = engine.enter_context(fake.in_thread())
            plain = Settings(engine=url, tokenizer=folder, store=tmp_path_factory.mktemp("store"), port=0, grace_s=1.0)
            settings = msgspec.structs.replace(plain, **changes)
            with serving(settings, say_nothing) as turnstile:
                wired = wires.Wired(turnstile, fake, tokenizer, settings.store, engine)
                with wired.http:
                    yield wired

    return wire_up


@pytest.fixture(scope="session")
def _wired_once(
    wire_up: Callable[..., Any], family: Callable[[str], Path], tools_folder: Path
) -> Iterator[Callable[..., Any]]:
    with ExitStack() as stack:

        @cache
        def once(name: str) -> Any:
            folder = tools_folder if name == "smollm2-tools" else family(name)
            return stack.enter_context(wire_up(folder, STOPS))

        yield once


@pytest.fixture
def wired(_wired_once: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """A Turnstile over the wire fake, started once for each family: `wired("qwen3")`, or `wired()` for a small one."""
    used: set[Any] = set()

    def wired(name: str = "smollm2-tools") -> Any:
        found = _wired_once(name)
        used.add(found)
        return found

    yield wired
    left = [each for each in used if not each.fake.is_spent]
    for each in used:
        each.fake.forget()
    assert not left, "the test left answers or faults that nothing asked for"


@pytest.fixture(scope="session")
def real_engines() -> Any:
    """The module that starts real engines; skips, with the reason, where they are not installed."""
    missing = by_path("install").missing("tiny-qwen3")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (`make engines` installs it)")
    return by_path("serve")


@pytest.fixture(scope="session")
def token_servers() -> Any:
    """The module that starts the examples' engine; skips, with the reason, where TRL's environment is not there."""
    module = by_path("token_server")
    module.PYTHON, reason = module.trl_python()
    if module.PYTHON is None:
        pytest.skip(f"the environment of TRL: {reason}")
    return module


@pytest.fixture(scope="session")
def plain_text(token_servers: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A tiny checkpoint that reads ids, and what a plain forward of it says."""
    plain = token_servers.Plain(token_servers.PYTHON, tmp_path_factory.mktemp("plain") / "text", "text")
    yield plain
    plain.close()


@pytest.fixture(scope="session")
def served_text(token_servers: Any, plain_text: Any) -> Iterator[Any]:
    """The examples' engine with it."""
    served = token_servers.Served(token_servers.PYTHON, plain_text.folder)
    yield served
    served.close()


@pytest.fixture(scope="session")
def tiny_folder(real_engines: Any) -> Path:
    """The folder of the tiny Qwen3: weights, tokenizer, template."""
    return real_engines.install.models()["tiny-qwen3"]


@pytest.fixture(scope="session")
def tiny_tokenizer_json(tiny_folder: Path) -> str:
    """Its tokenizer."""
    return (tiny_folder / "tokenizer.json").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def real_vllm(real_engines: Any) -> Iterator[Any]:
    """vLLM with the tiny Qwen3."""
    server = real_engines.Vllm.at_hand()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def real_llamacpp(real_engines: Any) -> Iterator[Any]:
    """llama.cpp with the same weights."""
    server = real_engines.Llamacpp()
    yield server
    server.kill()
