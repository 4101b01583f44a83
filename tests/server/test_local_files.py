"""The files that options name."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnstile.errors import TurnstileError
from turnstile.server.local_files import read_model_folder


def test_a_model_folder_is_read_with_another_template(tools_folder: Path) -> None:
    own, other = read_model_folder(tools_folder), read_model_folder(tools_folder, "x")
    assert "<tool_call>" in own.chat_template
    assert (other.chat_template, other.tokenizer_json) == ("x", own.tokenizer_json)


@pytest.mark.parametrize(("name", "content"), [("tokenizer_config.json", b"\xff"), ("chat_template.jinja", b"\xff")])
def test_a_file_that_is_no_text_is_a_users_mistake(
    tools_folder: Path, tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / "tokenizer.json").write_bytes((tools_folder / "tokenizer.json").read_bytes())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TurnstileError, match=name):
        read_model_folder(tmp_path)
