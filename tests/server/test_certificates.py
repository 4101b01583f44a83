"""Certificates on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from turnstile.engines import cache_home
from turnstile.server.certificates import (
    TooSlow,
    certificate_of,
    certificates_folder,
    refuse_slow_template,
)
from turnstile.templates.certificate import CertificateClass, certificate_key
from turnstile.templates.certify import Step, certify
from turnstile.templates.facts import serve
from turnstile.templates.files import ModelFiles, ModelFilesError
from turnstile.templates.served import Served

pytestmark = pytest.mark.families


@pytest.fixture(scope="module")
def smollm2(family_files: Callable[[str], ModelFiles]) -> Served:
    return serve(family_files("smollm2"), model="m")


def test_a_known_template_is_neither_rendered_nor_encoded_again(smollm2: Served, tmp_path: Path) -> None:
    steps: list[Step] = []
    made = certificate_of(smollm2, tmp_path, show=steps.append)
    assert steps
    steps.clear()
    assert certificate_of(smollm2, tmp_path, show=steps.append) == made == certify(smollm2)
    assert steps == []
    assert [file.name for file in tmp_path.iterdir()] == [f"{certificate_key(smollm2)}.json"]


def test_other_template_arguments_have_a_certificate_of_their_own(smollm2: Served, tmp_path: Path) -> None:
    certificate_of(smollm2, tmp_path)
    assert certificate_of(smollm2, tmp_path, '{"a":1}').kwargs == '{"a":1}'
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_that_a_crash_cut_off_is_made_again(smollm2: Served, tmp_path: Path) -> None:
    made = certificate_of(smollm2, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    assert certificate_of(smollm2, tmp_path) == made
    assert file.read_bytes() == msgspec.json.encode(made)


@pytest.mark.parametrize(
    "said", [{"version": 0}, {"key": "0"}, {"tokenizer_sha256": "0"}, {"template_sha256": "0"}, {"kwargs": '{"a":1}'}]
)
def test_a_file_that_is_of_something_else_is_made_again(
    smollm2: Served, tmp_path: Path, said: dict[str, object]
) -> None:
    made = certificate_of(smollm2, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(made, **said)))
    assert certificate_of(smollm2, tmp_path) == made
    assert file.read_bytes() == msgspec.json.encode(made)


def test_what_cannot_be_put_in_its_place_is_not_left_lying(smollm2: Served, tmp_path: Path) -> None:
    certificate_of(smollm2, tmp_path)
    (file,) = tmp_path.iterdir()
    file.unlink()
    file.mkdir()
    certificate_of(smollm2, tmp_path)
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_cannot_be_written_costs_only_time(smollm2: Served, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert certificate_of(smollm2, tmp_path / "file").certificate_class is CertificateClass.EXACT


def test_certificates_lie_in_the_users_cache() -> None:
    assert certificates_folder() == cache_home() / "turnstile" / "certificates"


def test_checks_that_take_too_long_end_and_are_not_kept(smollm2: Served, tmp_path: Path) -> None:
    with pytest.raises(TooSlow, match="After 0 s only 0 of 27 checks"):
        certificate_of(smollm2, tmp_path, limit_s=0.0)
    assert list(tmp_path.iterdir()) == []


SLOW = "{% for a in range(2000) %}{% set text = ('ab' * 20000) | replace('a', 'c') %}{% endfor %}"
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def test_an_endless_template_is_refused_after_one_message(family_files: Callable[[str], ModelFiles]) -> None:
    with pytest.raises(TooSlow, match=r"more than .* steps"):
        refuse_slow_template(msgspec.structs.replace(family_files("smollm2"), chat_template=ENDLESS))


def test_a_slow_template_is_refused_after_one_message(family_files: Callable[[str], ModelFiles]) -> None:
    files = family_files("smollm2")
    refuse_slow_template(files)
    with pytest.raises(TooSlow, match="for one message"):
        refuse_slow_template(msgspec.structs.replace(files, chat_template=SLOW))
    with pytest.raises(TooSlow, match="for one message"):
        refuse_slow_template(msgspec.structs.replace(files, tool_use_template=SLOW))
    with pytest.raises(ModelFilesError, match="cannot be compiled"):
        refuse_slow_template(msgspec.structs.replace(files, chat_template="{% if %}"))
