"""What each record leaves in the tables."""

from __future__ import annotations

import sqlite3

from turnstile.store import Journal
from turnstile.store.tables import kind_of


async def test_a_row_says_what_the_record_is_and_whose_call_it_belongs_to(tmp_path, make):
    records = [make.opened("r"), make.started("r", "c1"), make.committed("r", "c1"), make.finished("r")]
    journal = Journal.open(tmp_path)
    await journal.append_all(records)
    journal.close()
    connection = sqlite3.connect(tmp_path / "journal.sqlite3")
    rows = connection.execute("SELECT seq, rollout_id, attempt, kind, call_id FROM records ORDER BY seq").fetchall()
    connection.close()
    assert rows == [
        (1, "r", 1, "rollout_opened", ""),
        (2, "r", 1, "call_started", "c1"),
        (3, "r", 1, "turn_committed", "c1"),
        (4, "r", 1, "rollout_finished", ""),
    ]
    assert [kind_of(record) for record in records] == [row[3] for row in rows]
