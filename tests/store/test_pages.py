"""SQLite's pages read without SQLite are what SQLite reads."""

from __future__ import annotations

import random
import sqlite3

from turnstile.store.pages import Pages


def written(file, *, mode="delete"):
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT, c BLOB, d REAL, e INTEGER)")
    connection.execute("CREATE INDEX i ON t (b, e)")
    connection.execute("CREATE TABLE w (k TEXT PRIMARY KEY, v TEXT) WITHOUT ROWID")
    rng = random.Random(7)
    for number in range(400):
        long = rng.choice([0, 10, 300, 5000, 20_000])
        values = (
            f"täxt{number}" * rng.randint(0, 400),
            rng.randbytes(long),
            rng.random(),
            rng.randint(-(2**63), 2**63 - 1),
        )
        connection.execute("INSERT INTO t (b, c, d, e) VALUES (?, ?, ?, ?)", values)
        connection.execute(
            "INSERT INTO w VALUES (?, ?)", (f"k{number}" * rng.randint(1, 300), "v" * rng.randint(0, 6000))
        )
    return connection


def rows(connection, query):
    return sorted(connection.execute(query).fetchall())


def test_every_row_and_every_entry_is_found_short_and_long(tmp_path):
    connection = written(tmp_path / "a.db")
    table, index, without = [], [], []
    for number, columns in Pages(tmp_path / "a.db").rows():
        match columns:
            case (None, str(), bytes(), float(), int()):
                table.append((number, *columns[1:]))
            case (str(), int(), int()):
                index.append(columns)
            case (str(), str()):
                without.append(columns)
    assert sorted(table) == rows(connection, "SELECT a, b, c, d, e FROM t")
    assert sorted(index) == rows(connection, "SELECT b, e, a FROM t")
    assert sorted(without) == rows(connection, "SELECT k, v FROM w")
    connection.close()


def test_commits_in_the_write_ahead_log_count_and_what_was_not_committed_does_not(tmp_path):
    connection = written(tmp_path / "a.db", mode="wal")
    connection.execute("PRAGMA cache_size = 5")
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO t (b, c) VALUES (?, ?)", [("never", b"x" * 5000)] * 200)
    pages = Pages(tmp_path / "a.db")
    found = {number for number, columns in pages.rows() if len(columns) == 5 and isinstance(columns[2], bytes)}
    connection.execute("ROLLBACK")
    assert found == {number for (number,) in connection.execute("SELECT a FROM t")}
    assert pages.torn_commits == 0
    connection.close()


def test_a_file_that_is_no_database_has_no_rows(tmp_path):
    rng = random.Random(1)
    for size in (0, 1, 99, 4096, 50_000):
        (tmp_path / "a.db").write_bytes(rng.randbytes(size))
        for _ in Pages(tmp_path / "a.db").rows():
            pass


def test_what_is_no_database_is_not_said_to_lack_pages(tmp_path):
    file = tmp_path / "journal.sqlite3"
    file.write_bytes(b"hello world, not a database\n" * 500)
    assert Pages(file).gone == 0
