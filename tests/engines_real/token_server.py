"""The engine of the examples as a process of TRL's environment, and a plain model beside it that knows better."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import zlib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENGINE = ROOT / "examples" / "rl" / "engine" / "serve.py"
_VARIABLES = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": ""}


class Plain:
    """A tiny checkpoint in a folder, and what a plain forward of it says."""

    def __init__(self, python: Path, folder: Path, kind: str) -> None:
        """Make it. Raises: RuntimeError if that fails."""
        self.folder = folder
        self._process = subprocess.Popen(
            [str(python), str(HERE / "tiny_of_ids.py"), str(folder), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | _VARIABLES,
        )
        self._lock = threading.Lock()
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "made\n":
            raise RuntimeError(f"no tiny {kind} model could be made: run tests/engines_real/tiny_of_ids.py")

    def ask(self, **said: Any) -> Any:
        """A line of `tiny_of_ids.py`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(said) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Served:
    """The server, on a free port."""

    def __init__(self, python: Path, folder: Path, *flags: str) -> None:
        """Start it. Raises: RuntimeError with its log if it does not."""
        self._log = (folder.parent / f"{folder.name}.log").open("w+")
        self._process = subprocess.Popen(
            [str(python), str(ENGINE), str(folder), "--threads", "1", *flags],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | _VARIABLES,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            self._process.wait()
            self._log.seek(0)
            raise RuntimeError(self._log.read())

    def get(self, path: str, /) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.load(answer)

    def post(self, path: str, /, **body: Any) -> Any:
        """The answer's JSON; of a refusal too, with its `status`."""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return json.load(refused) | {"status": refused.code}

    def close(self) -> None:
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        self._process.kill()
        self._process.communicate()
        self._log.close()


def picture(shade: int, wide: int = 56, high: int = 56) -> bytes:
    """A PNG of stripes, written by hand: only the engine's environment has a library for it."""
    rows = b"".join(
        b"\0" + bytes(value for x in range(wide) for value in ((x * shade) % 256, (y * 7) % 256, shade))
        for y in range(high)
    )
    header = struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def trl_python() -> tuple[Path | None, str]:
    """The interpreter of TRL's environment; None and why, where it is not there."""
    trainers = HERE.parent / "trainers"
    sys.path.insert(0, str(trainers))
    try:
        spec = importlib.util.spec_from_file_location("environments_of_trainers", trainers / "install.py")
        assert spec is not None
        assert spec.loader is not None
        installer = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(installer)
    finally:
        sys.path.remove(str(trainers))
    trl = next(each for each in installer.ENVIRONMENTS if each.name == "trl")
    return (installer.python(trl), "") if installer.is_installed(trl) else (None, installer.why_not(trl))
