"""One writing process a store; readers need no leave."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from turnstile.errors import StoreError
from turnstile.store import Journal, Reader

HOLDER = """
import sys, time
from pathlib import Path
from turnstile.store import Journal
journal = Journal.open(Path(sys.argv[1]))
print("open", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "open\n"
    yield child
    child.kill()
    child.stdout.close()
    child.wait()


def test_a_second_writing_process_is_refused_and_told_who_has_the_store(tmp_path, holder):
    with pytest.raises(StoreError) as refused:
        Journal.open(tmp_path)
    assert refused.value.problem == f"The store `{tmp_path}` is in use by process {holder.pid}"
    assert refused.value.code == "store_in_use"


def test_another_process_may_read_while_one_writes(tmp_path, holder):
    with Reader.open(tmp_path) as reader:
        assert reader.rollouts() == []


def test_the_store_is_free_when_its_process_was_killed(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    Journal.open(tmp_path).close()


def test_a_second_journal_in_the_same_process_is_refused(tmp_path):
    journal = Journal.open(tmp_path)
    with pytest.raises(StoreError, match="is in use by process"):
        Journal.open(tmp_path)
    journal.close()
    Journal.open(tmp_path).close()


def test_a_child_process_does_not_keep_the_store_from_the_next_one(tmp_path):
    journal = Journal.open(tmp_path)
    with subprocess.Popen(["sleep", "30"], close_fds=False) as child:
        journal.close()
        Journal.open(tmp_path).close()
        child.kill()
