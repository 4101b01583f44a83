"""verl's own worker runs our agent loop on a live server, and its batch holds what was recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"
LIMIT_S = 380.0
pytestmark = pytest.mark.timeout(LIMIT_S + 60)
REGION = 64


def test_the_batch_of_verl_holds_ids_masks_and_numbers_of_the_live_rollouts(
    inside: Any, wire_up: Callable[..., Any], tools_folder: Path, tmp_path: Path
) -> None:
    for each in tools_folder.iterdir():
        (tmp_path / each.name).write_bytes(each.read_bytes())
    with wire_up(tools_folder, ["<|im_end|>"]) as room:
        room.script("Hello.<|im_end|>", "Bye.<|im_end|>", "Hello.<|im_end|>", "Bye.<|im_end|>")
        told = {"url": room.client.url, "folder": str(tmp_path)}
        said = inside("verl", PROGRAMS / "verl_loop.py", told, limit_s=LIMIT_S)
        recorded = list(room.client.trajectories(group_id="u", group_size=2, timeout_s=5.0))
    assert said["silent"] == []
    assert sorted(each.sample_index or 0 for each in recorded) == [0, 1]
    batch = said["batch"]
    for row, rollout in enumerate(sorted(recorded, key=lambda each: each.sample_index or 0)):
        (sequence,) = rollout.sequences
        prompt, mask = sequence.token_ids.tolist()[: sequence.prompt_length], sequence.loss_mask_T().tolist()
        response = sequence.token_ids.tolist()[sequence.prompt_length :]
        assert batch["prompts"][row][REGION - len(prompt) :] == prompt
        assert batch["responses"][row][: len(response)] == response
        assert batch["response_mask"][row][: len(response)] == mask[len(prompt) :]
        assert batch["rollout_log_probs"][row][: len(response)] == pytest.approx(
            sequence.logprobs_T(fill=0.0).tolist()[len(prompt) :], abs=1e-6
        )
        assert (batch["rm_scores"][row][len(response) - 1], sum(batch["rm_scores"][row])) == (1.0, 1.0)
