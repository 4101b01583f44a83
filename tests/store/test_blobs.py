"""Bytes are found again by their hash, and only as they were."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.errors import StoreError
from turnstile.store import Blobs


@settings(max_examples=30, deadline=None)
@given(content=st.binary(max_size=300))
def test_bytes_are_found_again_by_their_sha256(tmp_path_factory, content):
    directory = tmp_path_factory.mktemp("store")
    sha256 = Blobs(directory).put(content)
    assert sha256 == hashlib.sha256(content).hexdigest()
    assert Blobs(directory).get(sha256) == content


def test_equal_bytes_are_kept_once_under_their_hash(tmp_path):
    blobs = Blobs(tmp_path)
    sha256 = blobs.put(b"template")
    assert blobs.put(b"template") == sha256
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "blobs" / sha256[:2] / sha256]


def test_a_blob_that_is_not_there_says_so(tmp_path):
    with pytest.raises(StoreError) as missing:
        Blobs(tmp_path).get("0" * 64)
    assert missing.value.code == "blob_missing"


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63])
def test_a_name_that_is_no_hash_never_reaches_the_file_system(tmp_path, name):
    with pytest.raises(StoreError, match="is no sha256"):
        Blobs(tmp_path).get(name)


def test_a_damaged_blob_is_refused(tmp_path):
    blobs = Blobs(tmp_path)
    sha256 = blobs.put(b"template")
    (tmp_path / "blobs" / sha256[:2] / sha256).write_bytes(b"templatf")
    with pytest.raises(StoreError) as damaged:
        blobs.get(sha256)
    assert damaged.value.code == "blob_damaged"


PUT_MANY = """
import sys
from pathlib import Path
from turnstile.store import Blobs
for number in range(50):
    Blobs(Path(sys.argv[1])).put(str(number).encode() * 1000)
"""


def test_two_processes_may_put_the_same_bytes_at_once(tmp_path):
    workers = [subprocess.Popen([sys.executable, "-c", PUT_MANY, str(tmp_path)]) for _ in range(2)]
    assert [worker.wait(30) for worker in workers] == [0, 0]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 50
    assert all(hashlib.sha256(file.read_bytes()).hexdigest() == file.name for file in files)


def test_a_directory_that_cannot_be_made_is_an_error_with_a_remedy(tmp_path):
    (tmp_path / "blobs").touch()
    with pytest.raises(StoreError) as refused:
        Blobs(tmp_path).put(b"x")
    assert refused.value.remedy == "Free space there and make the directory writable for this user"


def test_what_is_kept_can_be_asked_for_without_reading_it(tmp_path):
    blobs = Blobs(tmp_path)
    sha256 = blobs.put(b"one")
    assert (blobs.has(sha256), blobs.has("0" * 64)) == (True, False)


def test_a_blob_is_removed_only_if_nobody_asked_for_it_lately(tmp_path):
    blobs = Blobs(tmp_path)
    sha256 = blobs.put(b"an image")
    file = tmp_path / "blobs" / sha256[:2] / sha256
    os.utime(file, (1000, 1000))
    assert blobs.remove_quiet(sha256, 60.0, 1059.0) == 0
    assert blobs.ask_for(sha256)
    assert blobs.remove_quiet(sha256, 60.0, 2000.0) == 0
    os.utime(file, (1000, 1000))
    assert blobs.remove_quiet(sha256, 60.0, 1060.0) == 8
    assert (blobs.ask_for(sha256), blobs.remove_quiet(sha256, 60.0, 1060.0), blobs.size(sha256)) == (False, 0, 0)


def test_a_blob_that_was_removed_is_written_anew(tmp_path):
    blobs = Blobs(tmp_path)
    sha256 = blobs.put(b"an image")
    os.utime(tmp_path / "blobs" / sha256[:2] / sha256, (1000, 1000))
    blobs.remove_quiet(sha256, 0.0, 2000.0)
    assert blobs.put(b"an image") == sha256
    assert (blobs.get(sha256), blobs.size(sha256)) == (b"an image", 8)
