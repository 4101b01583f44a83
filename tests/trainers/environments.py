"""The environments in which real trainers are asked what they make of our trajectories.

They exclude each other's dependencies, so each has a folder of its own. To add one: an `Environment` in `ENVIRONMENTS`.
The project itself is not installed in them: programs run with its `src` on their path, so an environment serves every
checkout.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

TORCH = "torch==2.13.0"
"""On a machine without a GPU, have pip find its CPU build: a folder or an index of PyTorch's own, named by
PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL; 1.7 GB less for each environment."""
OURS = ("msgspec>=0.19", "orjson>=3.10", "pyarrow>=18", "numpy")
"""What files, converters and the client of Turnstile need."""
ALL_OF_OURS = tuple(
    tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
)
"""What the command line needs."""


@dataclass(frozen=True)
class Environment:
    """One virtual environment."""

    name: str
    requirements: tuple[str, ...]
    size_mb: int
    """With everything it needs, torch for CPUs."""


ENVIRONMENTS = (
    Environment(
        "trl",
        (
            TORCH,
            "transformers==5.24.0",
            "trl==1.16.0",
            "verifiers==0.4.0",
            "tinker==0.38.0",
            "atroposlib==0.4.0",
            "gguf",
            "pillow",
            "openai==2.54.0",
            "matplotlib==3.10.7",
            *ALL_OF_OURS,
        ),
        1600,
    ),
    Environment("verl", (TORCH, "verl==0.9.1", "cachetools", "uvicorn", "fastapi", *OURS), 1600),
    Environment("cookbook", (TORCH, "tinker-cookbook==0.5.8", *OURS), 1300),
)
