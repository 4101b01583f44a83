"""Python blocks marked `run` in README and docs, and all of examples/, against a real server."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest
from openai import OpenAI

import turnstile
from turnstile.client import Client

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
RUN = re.compile(r"^```python run\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEFAULT_URL = "http://127.0.0.1:7000"

pytestmark = pytest.mark.engine


def _blocks(page: Path) -> list[str]:
    return RUN.findall(page.read_text(encoding="utf-8"))


def run_my_agent(*, base_url: str, api_key: str) -> None:
    """The agent that the snippets leave to their reader."""
    with OpenAI(base_url=base_url, api_key=api_key) as client:
        model = client.models.list().data[0].id
        question = [{"role": "user", "content": "Name a colour."}]
        client.chat.completions.create(model=model, messages=question, max_tokens=4)


@pytest.fixture(scope="session")
def served(start: Callable[..., Client], tmp_path_factory: pytest.TempPathFactory) -> tuple[Client, Path]:
    """A server, and the folder of its store."""
    store = tmp_path_factory.mktemp("docs") / "runs"
    return start(store=store), store


def _turnstile(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "turnstile.cli", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture
def folder(served: tuple[Client, Path], tmp_path: Path) -> Path:
    """Where a reader stands who has followed the pages so far: with a file of exported rollouts."""
    client, store = served
    with client.rollout(group_id="g") as rollout:
        run_my_agent(base_url=rollout.openai_base_url, api_key=rollout.agent_key)
        rollout.finish(reward=1.0)
    _turnstile(tmp_path, "export", str(store), "-o", "rollouts.parquet")
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if _blocks(page)], ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_as_they_stand(
    page: Path, served: tuple[Client, Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = served
    monkeypatch.chdir(folder)
    for block in _blocks(page):
        code = compile(textwrap.dedent(block).replace(DEFAULT_URL, client.url), page.name, "exec")
        exec(code, {"run_my_agent": run_my_agent})


def test_a_gguf_is_served_by_the_recipe_of_the_page(gguf: Path, model_folder: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "serve-a-llamacpp-model.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "serve_gguf.py").write_text(recipe, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = [sys.executable, "serve_gguf.py", str(gguf), str(port)]
    with subprocess.Popen(program, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as server:
        try:
            _wait_for(f"http://127.0.0.1:{port}/health")
            options = {"tokenizer": model_folder, "model": "smol", "store": tmp_path / "runs"}
            with turnstile.serve(engine=f"http://127.0.0.1:{port}", **options) as client:
                with client.rollout() as rollout:
                    run_my_agent(base_url=rollout.openai_base_url, api_key=rollout.agent_key)
                assert rollout.trajectory().token_counts.trainable > 0
        finally:
            server.kill()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urlopen(url, timeout=5):
                return
        except OSError:
            assert time.monotonic() < deadline, f"{url} never answered"
            time.sleep(0.1)


def _example(name: str, folder: Path, *arguments: str, **environment: str) -> str:
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, text=True, timeout=90).stdout


def test_every_example_is_run_here() -> None:
    examples = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
    # The last but one has a test of its own, tests/examples/test_own_engine.py.
    assert examples == ["agent.py", "group_of_rollouts.py", "own_engine.py", "read_rows.py"]


def test_the_agent_runs_with_nothing_but_a_base_url(served: tuple[Client, Path], tmp_path: Path) -> None:
    client, _ = served
    _example("agent.py", tmp_path, OPENAI_BASE_URL=f"{client.url}/r/docs-agent/v1", OPENAI_API_KEY="any")
    trajectory = client.trajectory("docs-agent")
    assert [call.history for call in trajectory.calls] == ["root", "spliced"]
    assert trajectory.token_counts.sampled == trajectory.token_counts.trainable > 0


def test_what_the_agent_says_to_run_next_works(served: tuple[Client, Path], tmp_path: Path) -> None:
    client, store = served
    said = _example("agent.py", tmp_path, OPENAI_BASE_URL=f"{client.url}/r/docs-next/v1", OPENAI_API_KEY="any")
    commands = re.findall(r"^  turnstile (.*)$", said, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["export", "validate", "drift"]
    for command in commands:
        _turnstile(tmp_path, *(str(store) if word == "runs" else word for word in command.split()))


def test_the_group_prints_a_row_for_each_rollout(served: tuple[Client, Path], tmp_path: Path) -> None:
    client, _ = served
    rows = _example("group_of_rollouts.py", tmp_path, client.url).splitlines()
    assert len(rows) == 4
    assert all(
        re.fullmatch(r"\S+/0: \d+ tokens, \d+ trained, reward [01]\.0, log-probability -\d.*", row) for row in rows
    )


def test_rows_are_read_from_an_exported_file(folder: Path) -> None:
    rows = _example("read_rows.py", folder, "rollouts.parquet").splitlines()
    assert rows
    assert all(re.fullmatch(r"\S+ T=\d+ trained=\d+ advantage=[+-]\d\.\d{3}", row) for row in rows)


def test_an_exported_file_is_valid(folder: Path) -> None:
    found = _turnstile(folder, "validate", "rollouts.parquet")
    assert [line for line in found.splitlines() if line.startswith("E")] == []
