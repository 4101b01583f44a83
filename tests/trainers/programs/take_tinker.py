"""Datums of Tinker's own types, and what its cookbook makes of the same rollouts where it is installed."""

from __future__ import annotations

import json
import sys
from typing import Any

import tinker
from tinker.types import ImageChunk


def datum_of(fields: dict[str, Any]) -> tinker.Datum:
    inputs = {name: tinker.TensorData(**tensor) for name, tensor in fields["loss_fn_inputs"].items()}
    chunks = [
        tinker.EncodedTextChunk(tokens=chunk["tokens"])
        if chunk["type"] == "encoded_text"
        else ImageChunk(data=b"\x89PNG", format=chunk["format"], expected_tokens=chunk["expected_tokens"])
        for chunk in fields["model_input"]["chunks"]
    ]
    return tinker.Datum(model_input=tinker.ModelInput(chunks=chunks), loss_fn_inputs=inputs)


def arrays_of(datum: tinker.Datum) -> dict[str, Any]:
    """Each array with its type, and how many positions the input has."""
    arrays = {name: [tensor.dtype, tensor.to_numpy().tolist()] for name, tensor in datum.loss_fn_inputs.items()}
    return arrays | {"length": datum.model_input.length}


def cookbook(turns: list[list[list[Any]]], advantage: float) -> list[dict[str, Any]]:
    """The cookbook's own datums of observations, sampled ids and their log-probabilities."""
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.rl.data_processing import trajectory_to_data
    from tinker_cookbook.rl.types import Trajectory, Transition

    transitions = [
        Transition(
            ob=tinker.ModelInput.from_ints(observed),
            ac=TokensWithLogprobs(tokens=ids, maybe_logprobs=logprobs),
            reward=0.0,
            episode_done=False,
        )
        for observed, ids, logprobs in turns
    ]
    trajectory = Trajectory(transitions=transitions, final_ob=tinker.ModelInput.empty())
    return [arrays_of(datum) for datum in trajectory_to_data(trajectory, advantage)]


def main() -> None:
    said = json.load(sys.stdin)
    ours = [arrays_of(datum_of(fields)) for fields in said["samples"]]
    theirs = [each for turns, advantage in said.get("turns", []) for each in cookbook(turns, advantage)]
    print(json.dumps({"ours": ours, "theirs": theirs}))


main()
