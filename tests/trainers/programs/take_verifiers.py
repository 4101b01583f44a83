"""Traces through verifiers' own graph: ids, mask and log-probabilities of each branch."""

from __future__ import annotations

import json
import sys

from verifiers.v1.state import State
from verifiers.v1.task import TaskData
from verifiers.v1.trace import Trace


def main() -> None:
    said = []
    for fields in json.load(sys.stdin):
        trace = Trace[TaskData, State, dict].model_validate(fields)
        branches = [
            {"ids": each.token_ids, "mask": each.sampled_mask, "logprobs": each.logprobs} for each in trace.branches
        ]
        texts = [[message.role for message in each.messages] for each in trace.branches]
        exact = json.loads(trace.model_dump_json(context={"float_decimals": None}))
        kept = [node["logprobs"] for node in exact["nodes"]] == [node["logprobs"] for node in fields["nodes"]]
        said.append({"branches": branches, "roles": texts, "reward": trace.reward, "ok": trace.ok, "exact": kept})
    print(json.dumps(said))


main()
