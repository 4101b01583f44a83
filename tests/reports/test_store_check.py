"""What a check of a whole store finds."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile.errors import StoreError
from turnstile.reports.store_check import StoreCheck, wanted_blobs
from turnstile.store import Blobs, Journal, Reader


@pytest.fixture(scope="module")
def written(wire_up: Callable[..., Any], tools_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that a real server left: rollout `one` with two turns."""
    store = tmp_path_factory.mktemp("written")
    with wire_up(tools_folder, ["<|im_end|>"], store=store) as room:
        room.script("Hello.<|im_end|>", "Bye.<|im_end|>")
        agent = room.agent(rollout_id="one")
        first = agent.say("Hi")
        agent.say("Hi", first.message, "Bye")
        agent.handle.finish(reward=1.0)
    return store


@pytest.fixture
def store(written: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return shutil.copytree(written, tmp_path / "store")


def found(store: Path) -> list[tuple[str, str, str]]:
    with Reader.open(store) as reader:
        return [(each.weight.value, each.code, each.place) for each in StoreCheck(store, reader).findings()]


def alter(store: Path, statement: str) -> None:
    with sqlite3.connect(store / "journal.sqlite3") as connection:
        connection.execute(statement)
    connection.close()


def test_nothing_is_found_in_a_store_that_a_server_left(store: Path) -> None:
    with Reader.open(store) as reader:
        walk = StoreCheck(store, reader)
        assert list(walk.findings()) == []
        assert (walk.attempts, walk.records, walk.blobs) == (1, 6, 1)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("UPDATE records SET body = x'00' WHERE seq = 3", "record_damaged"),
        ("DELETE FROM records WHERE kind = 'rollout_opened'", "store_error"),
        ("UPDATE rollouts SET turns = 7", "summary_differs"),
        ("UPDATE rollouts SET status = 'running'", "summary_differs"),
    ],
)
def test_damage_to_a_rollout_is_named(store: Path, statement: str, code: str) -> None:
    alter(store, statement)
    assert found(store) == [("error", code, "one#1")]


def test_a_call_that_never_ended_in_a_closed_rollout_is_found(store: Path) -> None:
    alter(store, "DELETE FROM records WHERE kind = 'turn_committed' AND call_id = 'c1'")
    alter(store, "UPDATE rollouts SET turns = turns - 1, sampled_tokens = (SELECT 3)")
    assert ("error", "call_without_end", "one#1") in found(store)


def test_the_tokenizer_of_a_rollout_is_missed(store: Path) -> None:
    (blob,) = (store / "blobs").glob("??/*")
    blob.unlink()
    assert found(store) == [("error", "blob_missing", blob.name)]


def test_a_changed_blob_is_found(store: Path) -> None:
    (blob,) = (store / "blobs").glob("??/*")
    blob.write_bytes(b"other")
    assert found(store) == [("error", "blob_damaged", blob.name)]


def test_a_blob_that_no_record_names_is_no_loss(store: Path) -> None:
    orphan = Blobs(store).put(b"an image of a call that was never recorded")
    assert found(store) == [("note", "blob_orphan", orphan)]


def test_nothing_is_called_an_orphan_where_a_record_cannot_be_read(store: Path) -> None:
    Blobs(store).put(b"an image")
    alter(store, "UPDATE records SET body = x'00' WHERE seq = 3")
    assert found(store) == [("error", "record_damaged", "one#1")]


async def test_images_of_messages_are_wanted(tmp_path: Path, store: Path) -> None:
    with Reader.open(store) as reader:
        (card,) = (store / "blobs").glob("??/*")
        assert wanted_blobs(reader) == {card.name}


def test_what_cannot_be_read_is_never_taken_for_unwanted(store: Path) -> None:
    alter(store, "UPDATE records SET body = x'00' WHERE seq = 3")
    with Reader.open(store) as reader, pytest.raises(StoreError, match="is damaged"):
        wanted_blobs(reader)


def test_a_damaged_page_of_the_database_is_told_in_sqlites_words(store: Path) -> None:
    Journal.open(store).close()
    file = store / "journal.sqlite3"
    content = bytearray(file.read_bytes())
    # The second page is the root of a table: its header says which kind of page it is.
    page = int.from_bytes(content[16:18], "big")
    content[page : page + 8] = b"\xff" * 8
    file.write_bytes(content)
    assert ("error", "journal_damaged", "journal") in found(store)
