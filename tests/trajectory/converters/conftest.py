"""A group of two rollouts: the example with its fork, and one with a rewritten history and a masked token."""

from __future__ import annotations

import copy
import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstile.errors import CallerError
from turnstile.trajectory.converters.conversion import convert
from turnstile.trajectory.format import decode_line
from turnstile.trajectory.shapes import Rollout

FIRST = [1, 11, 2, 1, 20]
ANSWER = [30, 31, 32, 2]
REWRITTEN = [1, 12, 2, 1, 20, 30, 31, 32, 2, 3, 1, 50, 2, 1, 20]
SECOND = [60, 61, 62, 2]


def ids_hash(ids: list[int]) -> str:
    return hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()


def another(example: dict[str, Any]) -> dict[str, Any]:
    """The history was rewritten after the first answer, which stands replayed in front of the second.

    The second answer was sampled while new weights came, and one of its tokens has no log-probability.
    """
    one = copy.deepcopy(example)
    calls, sequence = one["calls"][:2], one["sequences"][0]
    d0 = calls[0] | {
        "call_id": "d0",
        "engine_finish_reason": "stop",
        "usage": {"prompt_tokens": 5, "completion_tokens": 4, "cached_tokens": None},
        "prompt_sha256": ids_hash(FIRST),
        "completion_sha256": ids_hash(ANSWER),
    }
    d1 = calls[1] | {
        "call_id": "d1",
        "parent": None,
        "history": "rerendered",
        "history_reason": "content_lost",
        "sequence": 1,
        "usage": {"prompt_tokens": 15, "completion_tokens": 4, "cached_tokens": None},
        "prompt_sha256": ids_hash(REWRITTEN),
        "completion_sha256": ids_hash(SECOND),
    }
    drawn = {"kind": "sampled", "trainable": True}
    first = sequence | {
        "sequence_id": "ro-0002/0",
        "leaf_call": 0,
        "token_ids": FIRST + ANSWER,
        "prompt_length": 5,
        "segments": [
            {"start": 0, "end": 3, "kind": "prompt"},
            {"start": 3, "end": 5, "kind": "scaffold"},
            {"start": 5, "end": 9, **drawn, "call": 0, "policy_version_min": 7, "policy_version_max": 7},
        ],
        "logprobs": [-0.125, -0.25, -0.5, -1.0],
        "messages": [0, 1],
    }
    masked = {"kind": "sampled", "trainable": False, "mask_reason": "logprob_missing"}
    second = sequence | {
        "sequence_id": "ro-0002/1",
        "leaf_call": 1,
        "token_ids": REWRITTEN + SECOND,
        "prompt_length": 15,
        "segments": [
            {"start": 0, "end": 3, "kind": "prompt"},
            {"start": 3, "end": 5, "kind": "scaffold"},
            {"start": 5, "end": 9, "kind": "replayed", "call": 0},
            {"start": 9, "end": 10, "kind": "scaffold"},
            {"start": 10, "end": 13, "kind": "prompt"},
            {"start": 13, "end": 15, "kind": "scaffold"},
            {"start": 15, "end": 16, **drawn, "call": 1, "policy_version_min": 7, "policy_version_max": 7},
            {"start": 16, "end": 17, **masked, "call": 1, "policy_version_min": 7, "policy_version_max": 8},
            {"start": 17, "end": 19, **drawn, "call": 1, "policy_version_min": 8, "policy_version_max": 8},
        ],
        "logprobs": [-0.5, None, -1.0, -0.25],
        "messages": [2, 1, 3, 4],
    }
    return one | {
        "rollout_id": "ro-0002",
        "sample_index": 1,
        "reward": 0.0,
        "rewards": {"tests": 0.0},
        "metrics": {},
        "heads": [one["heads"][0] | {"tools": None}],
        "calls": [d0, d1],
        "sequences": [first, second],
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "ho"},
            {"role": "user", "content": "hey"},
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "gone"},
        ],
        "tools": [],
        "token_counts": {"sampled": 8, "trainable": 7, "masked": {"logprob_missing": 1}, "discarded": {}},
        "extra": {},
    }


@pytest.fixture
def group(example: dict[str, Any]) -> list[dict[str, Any]]:
    """Both rollouts as the JSON of their lines, free to be changed."""
    return [example, another(example)]


def rollouts_of(group: list[dict[str, Any]]) -> list[Rollout]:
    return [decode_line(json.dumps(fields).encode()) for fields in group]


@pytest.fixture
def rollouts(group: list[dict[str, Any]]) -> list[Rollout]:
    """Both rollouts."""
    return rollouts_of(group)


@pytest.fixture
def samples_of(group: list[dict[str, Any]]) -> Callable[..., list[dict[str, Any]]]:
    """The samples of a trainer, of the group or of other rollouts given as JSON."""

    def samples(trainer: str, given: list[dict[str, Any]] | None = None, **options: Any) -> list[dict[str, Any]]:
        made = convert(rollouts_of(group if given is None else given), trainer, **options)
        return json.loads(json.dumps([each.sample for each in made]))

    return samples


@pytest.fixture
def golden() -> Callable[[str], list[dict[str, Any]]]:
    """The samples that the trainer's own source asks for, written by hand."""
    return lambda name: json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture
def code_of(group: list[dict[str, Any]]) -> Callable[..., str]:
    """The code with which a conversion is refused; empty if it is not."""

    def code(trainer: str, given: list[dict[str, Any]] | None = None, **options: Any) -> str:
        try:
            list(convert(rollouts_of(group if given is None else given), trainer, **options))
        except CallerError as refused:
            assert refused.problem
            assert refused.remedy
            return refused.code
        return ""

    return code


@pytest.fixture
def any_scored(any_rollout: Callable[..., Rollout]) -> Callable[..., Rollout]:
    """Any rollout, scored, in a group, and sampled by weights of known versions."""

    def scored(data: Any) -> Rollout:
        rollout = any_rollout(data)
        sequences = tuple(
            msgspec.structs.replace(
                sequence,
                segments=tuple(
                    msgspec.structs.replace(each, policy_version_min=3, policy_version_max=3)
                    if each.policy_version_min is None and each.call is not None
                    else each
                    for each in sequence.segments
                ),
            )
            for sequence in rollout.sequences
        )
        return msgspec.structs.replace(rollout, status="completed", reward=1.0, group_id="g", sequences=sequences)

    return scored
