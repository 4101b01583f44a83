"""`turnstile replay`."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from turnstile.cli.replay import DIFFERENT
from turnstile.engines import tools_template
from turnstile.errors import CallerError, StoreError
from turnstile.store.schema import JOURNAL_FILE


def test_recorded_prompts_come_out_equal(run: Callable[..., Any], store: Path) -> None:
    told = run("replay", store, "one")
    assert (told.exit_code, told.stdout) == (0, "equal  one: all ids of 2 prompts are the recorded ones.\n")


def test_a_tampered_template_gives_the_first_difference_and_another_exit_code(
    run: Callable[..., Any], store: Path, tmp_path: Path
) -> None:
    template = tmp_path / "other.jinja"
    template.write_text(tools_template().replace("'<|im_end|>\\n' }}\n    {%- endif", "'<|im_end|>' }}\n    {%- endif"))
    told = run("replay", store, "one", "--template", template, "--json")
    report = json.loads(told.stdout)
    assert (told.exit_code, report["differing"]) == (DIFFERENT, 2)
    first = report["calls"][0]
    assert first["difference"]["then"].startswith("Hi<|im_end|>\n<|im_start|>assistant")
    assert first["difference"]["now"].startswith("Hi<|im_end|><|im_start|>assistant")
    shown = run("replay", store, "one", "--template", template)
    at = first["difference"]["index"]
    assert shown.stdout.startswith(
        f"different  one: 2 of 2 prompts are not as recorded.\nFirst: prompt of c0 at token {at}\n"
    )


def test_another_policy_says_what_would_have_happened(run: Callable[..., Any], store: Path) -> None:
    told = run("replay", store, "one", "--retention", "template", "--json")
    report = json.loads(told.stdout)
    # "Hello" was sampled letter by letter; what the template writes is one word.
    assert [call["now"] for call in report["calls"]] == ["root", "forked:retention"]
    assert (report["then"]["forks"], report["now"]["forks"]) == (0, 1)
    assert report["now"]["prompt_tokens"] < report["then"]["prompt_tokens"]


def test_a_tokenizer_with_the_same_tokens_is_taken_and_another_refused_by_name(
    run: Callable[..., Any], store: Path, tools_folder: Path, family: Callable[[str], Path]
) -> None:
    assert run("replay", store, "one", "--tokenizer", tools_folder).exit_code == 0
    refused = run("replay", store, "one", "--tokenizer", family("qwen3")).exception
    assert isinstance(refused, CallerError)
    assert refused.code == "tokenizer_mismatch"


def test_what_is_not_there_is_a_mistake_with_a_remedy(run: Callable[..., Any], store: Path, tmp_path: Path) -> None:
    for arguments in (("nobody",), ("one", "--attempt", "7")):
        refused = run("replay", store, *arguments).exception
        assert isinstance(refused, CallerError)
        assert refused.code == "rollout_not_found"
    assert isinstance(run("replay", tmp_path, "one").exception, StoreError)


@pytest.mark.parametrize("content", [b"", b"\xff"])
def test_a_template_that_is_no_text_is_refused(
    run: Callable[..., Any], store: Path, tmp_path: Path, content: bytes
) -> None:
    template = tmp_path / "bad.jinja"
    template.write_bytes(content)
    assert isinstance(run("replay", store, "one", "--template", template).exception, CallerError)


def test_a_rollout_whose_opening_is_lost_is_a_damaged_store(
    run: Callable[..., Any], store: Path, tmp_path: Path
) -> None:
    copied = Path(shutil.copytree(store, tmp_path / "copied"))
    with closing(sqlite3.connect(copied / JOURNAL_FILE)) as connection, connection:
        connection.execute("DELETE FROM records WHERE rollout_id = 'one' AND seq = 1")
    refused = run("replay", copied, "one").exception
    assert isinstance(refused, StoreError)
    assert refused.code == "record_damaged"
