from __future__ import annotations

import json
from hashlib import sha256

import msgspec
import pytest

from turnstile.trajectory.files import FileForm, open_writer, read, write
from turnstile.trajectory.format import decode_line
from turnstile.trajectory.npy import SideArray, array_entry, to_npy
from turnstile.trajectory.shapes import MediaEntry
from turnstile.trajectory.side_files import SideBytesLost, SideFiles, SideKind
from turnstile.trajectory.validate import validate_file

PICTURE = b"a picture"
PICTURE_SHA256 = sha256(PICTURE).hexdigest()
EXPERTS = to_npy(SideArray("uint8", (21, 2, 4), bytes(168)))
EXPERTS_SHA256 = sha256(EXPERTS).hexdigest()


class Bytes:
    """What a store would have, and how often it was asked."""

    def __init__(self, *contents: bytes) -> None:
        self.held = {sha256(content).hexdigest(): content for content in contents}
        self.asked: list[tuple[SideKind, str]] = []

    def side_bytes(self, kind: SideKind, name_sha256: str) -> bytes:
        self.asked.append((kind, name_sha256))
        if name_sha256 not in self.held:
            raise SideBytesLost(f"no {name_sha256}", "Look for it")
        return self.held[name_sha256]


@pytest.fixture
def rollout(example):
    """The example with an image in its prompt and the experts of each token but the last."""
    found = decode_line(json.dumps(example).encode())
    picture = MediaEntry(
        sha256=PICTURE_SHA256,
        mime="image/png",
        kind="image",
        offset=1,
        length=2,
        num_tokens=2,
        placeholder_id=11,
        width=640,
        height=480,
    )
    arrays = {"routed_experts": array_entry(EXPERTS, "tokens", 0, 21)}
    first = msgspec.structs.replace(found.sequences[0], media=(picture,), arrays=arrays)
    second = msgspec.structs.replace(found.sequences[1], media=(picture,))
    return msgspec.structs.replace(found, sequences=(first, second))


@pytest.mark.parametrize("ending", [form.value for form in FileForm])
def test_what_rollouts_name_is_put_beside_their_file_once(tmp_path, rollout, ending):
    source, path = Bytes(PICTURE, EXPERTS), tmp_path / f"a{ending}"
    other = msgspec.structs.replace(rollout, rollout_id="ro-2", reward=0.0)
    write(path, [rollout, other], source)
    assert list(read(path)) == [rollout, other]
    assert list(validate_file(path)) == []
    names = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert names == {
        path.name,
        f"a{ending}.media/{PICTURE_SHA256[:2]}/{PICTURE_SHA256}",
        f"a{ending}.arrays/{EXPERTS_SHA256}.npy",
    }
    assert source.asked == [(SideKind.MEDIA, PICTURE_SHA256), (SideKind.ARRAYS, EXPERTS_SHA256)]


def test_one_file_is_a_source_for_another(tmp_path, rollout):
    write(tmp_path / "a.jsonl", [rollout], Bytes(PICTURE, EXPERTS))
    write(tmp_path / "b.parquet", read(tmp_path / "a.jsonl"), SideFiles(tmp_path / "a.jsonl"))
    assert list(read(tmp_path / "b.parquet")) == [rollout]
    assert [violation.code for violation in validate_file(tmp_path / "b.parquet")] == ["W802"]


def test_a_rollout_whose_bytes_are_lost_is_refused_and_the_others_are_written(tmp_path, rollout):
    plain = msgspec.structs.replace(
        rollout, sequences=tuple(msgspec.structs.replace(each, media=(), arrays={}) for each in rollout.sequences)
    )
    with open_writer(tmp_path / "a.jsonl", Bytes(EXPERTS)) as writer:
        with pytest.raises(SideBytesLost):
            writer.write(rollout)
        writer.write(plain)
    assert list(read(tmp_path / "a.jsonl")) == [plain]


def test_bytes_that_changed_are_not_passed_on(tmp_path, rollout):
    source = Bytes(EXPERTS)
    source.held[PICTURE_SHA256] = b"another"
    with pytest.raises(SideBytesLost, match="have another hash"):
        write(tmp_path / "a.jsonl", [rollout], source)
    assert not any(file.is_file() for file in tmp_path.rglob("*"))


def test_only_a_hash_is_a_name(tmp_path):
    (tmp_path / "a.jsonl.arrays").mkdir()
    (tmp_path / "secret.npy").write_bytes(b"secret")
    files = SideFiles(tmp_path / "a.jsonl")
    assert files.find(SideKind.ARRAYS, "../secret") is None
    with pytest.raises(SideBytesLost, match="is not there"):
        files.side_bytes(SideKind.MEDIA, "0" * 64)
