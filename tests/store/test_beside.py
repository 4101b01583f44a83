"""Another process changes a store in short transactions of its own."""

from __future__ import annotations

import pytest

from turnstile.errors import StoreError
from turnstile.store import Journal, Reader
from turnstile.store.beside import beside, committed


def test_a_transaction_that_raises_is_taken_back(tmp_path):
    Journal.open(tmp_path).close()
    with beside(tmp_path) as connection:
        with pytest.raises(KeyError), committed(connection):
            connection.execute("INSERT INTO meta VALUES ('a', 'b')")
            raise KeyError
        with committed(connection):
            connection.execute("INSERT INTO meta VALUES ('c', 'd')")
    with Reader.open(tmp_path) as reader:
        assert reader.metas() == {"c": "d"}


def test_a_directory_without_a_journal_is_not_made_one(tmp_path):
    with pytest.raises(StoreError, match="There is no journal"), beside(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
