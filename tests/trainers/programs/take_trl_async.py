"""Samples through TRL's own sample, trie and collator: what each trained token is scored by."""

from __future__ import annotations

import json
import sys

import numpy as np
from trl.experimental.async_grpo.async_grpo_trainer import DataCollatorForRollout
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample
from trl.experimental.async_grpo.packing import TreeRow

TYPES = {"input_ids": np.int64, "completion_mask": np.int64, "old_log_probs": np.float32}


def main() -> None:
    row = TreeRow()
    for fields in json.load(sys.stdin):
        arrays = {name: np.asarray(fields[name], dtype) for name, dtype in TYPES.items()}
        sample = RolloutSample(**(fields | arrays))
        names = ("input_ids", "completion_mask", "old_log_probs", "advantage", "group_id", "metrics")
        row.add({name: getattr(sample, name) for name in names})
    batch = DataCollatorForRollout(pad_token_id=0).torch_call([[row]])
    places = batch["token_index"][0]
    said = {
        "sample": [],
        "target": batch["shift_labels"][0][places].tolist(),
        "position": (batch["position_ids"][0][places] + 1).tolist(),
        "logprob": batch["old_log_probs"][0].tolist(),
        "advantage": batch["advantages"][0].tolist(),
        "forwarded": int(batch["attention_mask"].sum()),
    }
    said["sample"] = row.pack()["segment_id"].tolist()
    print(json.dumps(said))


main()
