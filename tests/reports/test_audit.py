"""Which sequences of a file are audited, and what is said of them together."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from turnstile.errors import CallerError, StoreError
from turnstile.reports.audit import Chosen, audit, choose, total
from turnstile.reports.audit_figures import Verdict
from turnstile.trajectory.files import write
from turnstile.trajectory.npy import SideArray, array_entry, to_npy


@pytest.fixture
def talk(toy: Any) -> Any:
    return toy.Talk()


@pytest.fixture
def file(talk: Any, tmp_path: Path) -> Path:
    """Ten rollouts: nine exact, one shifted."""
    path = tmp_path / "rollouts.jsonl"
    right = talk.rollout(talk.exact)
    wrong = talk.rollout([-1.0, *talk.exact[:-1]])
    write(path, [replace(wrong if at == 4 else right, rollout_id=f"r{at}") for at in range(10)])
    return path


def test_a_file_is_audited_in_its_order_and_its_verdict_is_the_worst(talk: Any, file: Path) -> None:
    chosen = choose(file)
    assert chosen == Chosen(10, 10 * len(talk.ids))
    found = list(audit(file, talk.model, chosen))
    assert [each.rollout_id for each in found] == [f"r{at}" for at in range(10)]
    assert [each.verdict for each in found].index(Verdict.FAULT) == 4
    whole = total(found)
    assert (whole.verdict, whole.figures.tokens) == (Verdict.FAULT, 400)
    assert whole.sequences == {"exact": 9, "engine noise": 0, "fault": 1, "not compared": 0}


def test_a_sample_is_the_same_each_time_and_of_the_size_that_was_asked(talk: Any, file: Path) -> None:
    chosen = choose(file, sample=3)
    assert chosen == choose(file, sample=3)
    assert (chosen.sequences, chosen.tokens) == (3, 3 * len(talk.ids))
    assert len(list(audit(file, talk.model, chosen))) == 3
    assert choose(file, sample=99).sequences == 10


def test_a_folder_of_files_is_one_file(talk: Any, file: Path) -> None:
    write(file.with_name("more.parquet"), [replace(talk.rollout(talk.exact), rollout_id="more")])
    assert choose(file.parent).sequences == 11


def test_with_two_models_one_has_to_be_named(talk: Any, tmp_path: Path) -> None:
    path = tmp_path / "two.jsonl"
    first = talk.rollout(talk.exact)
    second = replace(first, rollout_id="s", heads=(replace(first.heads[0], model="other"),))
    write(path, [first, second])
    with pytest.raises(CallerError, match="several models: m, other"):
        choose(path)
    chosen = choose(path, served="other")
    assert [each.rollout_id for each in audit(path, talk.model, chosen, served="other")] == ["s"]


def test_nothing_compared_is_a_verdict_of_its_own(talk: Any, file: Path) -> None:
    assert total([]).verdict is Verdict.NOT_COMPARED


def test_kept_sets_beside_the_file_restrict_the_distribution(talk: Any, toy: Any, tmp_path: Path) -> None:
    kept = [sorted({talk.ids[at], 1, 2, 3}) for at in talk.places]
    run = toy.ToyRun(talk.ids, talk.model.seed)
    asked = toy.Asked
    numbers = run.logprobs(
        [asked(at - 1, talk.ids[at], kept=tuple(ids)) for at, ids in zip(talk.places, kept, strict=True)]
    )
    offsets = [sum(len(each) for each in kept[:at]) for at in range(len(kept) + 1)]
    path = tmp_path / "kept.jsonl"
    entries = {}
    for name, values in (("kept_ids", [token_id for each in kept for token_id in each]), ("kept_offsets", offsets)):
        content = to_npy(SideArray("int32", (len(values),), toy.IdRun.of(values).packed))
        entries[name] = array_entry(content, "sampled", 0, 40)
        folder = tmp_path / "kept.jsonl.arrays"
        folder.mkdir(exist_ok=True)
        (folder / f"{sha256(content).hexdigest()}.npy").write_bytes(content)
    rollout = talk.rollout(numbers, top_p=0.5)
    write(path, [replace(rollout, sequences=(replace(rollout.sequences[0], arrays=entries),))])
    (found,) = audit(path, talk.model, choose(path))
    assert found.verdict is Verdict.EXACT
    for each in folder.iterdir():
        each.unlink()
    with pytest.raises(StoreError):
        list(audit(path, talk.model, choose(path)))
