"""Models kept in the store itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from turnstile.errors import StoreError
from turnstile.history.forest import Forest
from turnstile.reports.shelf import ModelShelf
from turnstile.server.local_files import read_model_folder
from turnstile.store import Blobs, Journal, Reader
from turnstile.templates.facts import serve


def test_the_model_of_a_head_comes_back_from_the_store_alone(left: Any, reader: Reader, shelf: ModelShelf) -> None:
    (head,) = Forest.of(reader.records(left.rollout_id)).heads.values()
    served = shelf.served(head)
    assert (served.tokenizer.sha256, served.template.sha256) == (head.tokenizer_sha256, head.chat_template_sha256)
    assert served.tokenizer.decode(served.tokenizer.encode("Hello")) == "Hello"
    assert shelf.served(head) is served


def test_a_model_that_the_store_lacks_is_named(left: Any, reader: Reader, shelf: ModelShelf) -> None:
    (head,) = Forest.of(reader.records(left.rollout_id)).heads.values()
    with pytest.raises(StoreError, match="feedbeef") as missing:
        shelf.served(msgspec.structs.replace(head, tokenizer_sha256="feedbeef"))
    assert missing.value.code == "model_missing"


async def test_a_model_is_kept_once_also_under_its_template_for_tools(tmp_path: Any, tools_folder: Any) -> None:
    files = msgspec.structs.replace(read_model_folder(tools_folder), tool_use_template="{{ messages[0].content }}tools")
    served = serve(files, model="m", stop_ids=frozenset())
    journal = Journal.open(tmp_path)
    with Reader.open(tmp_path) as reader:
        for _ in range(2):
            await ModelShelf(reader, Blobs(tmp_path)).put(journal, served, files)
        journal.close()
        kept = [each for each in (tmp_path / "blobs").rglob("*") if each.is_file()]
        assert len(kept) == 1
        keys = [
            f"model_files:{each.tokenizer.sha256}:{each.template.sha256}"
            for each in (served, served.for_tools(("{}",)))
        ]
        assert len({reader.meta(key) for key in keys}) == 1
        assert keys[0] != keys[1]
