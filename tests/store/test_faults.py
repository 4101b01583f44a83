"""A database's error names what, where and what to do."""

from __future__ import annotations

import pytest

from turnstile.errors import StoreError
from turnstile.store import Journal, Reader


@pytest.mark.parametrize("open_store", [Journal.open, Reader.open])
def test_a_file_that_is_no_database_says_so(tmp_path, open_store):
    (tmp_path / "journal.sqlite3").write_bytes(b"not a database, but long enough to have a header" * 100)
    with pytest.raises(StoreError) as refused:
        open_store(tmp_path)
    file = tmp_path / "journal.sqlite3"
    assert str(refused.value) == (
        f"Cannot open the journal in `{file}`: it is no journal (file is not a database). "
        "Name the directory that `turnstile serve --store` was given."
    )


def test_a_store_on_a_path_that_is_a_file_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="` is a file"):
        Journal.open(tmp_path / "file")
