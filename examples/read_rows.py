"""From a trajectory file to the rows that a policy-gradient trainer takes: ids, mask, log-probabilities, advantage.

    turnstile export runs -o rollouts.parquet
    python examples/read_rows.py rollouts.parquet

The advantage here is the reward less the mean of its group, divided by the number of rows of the rollout, so that
a rollout with many forks does not count many times.
"""

from __future__ import annotations

import sys
from collections import defaultdict

import turnstile


def main() -> None:
    """Print one line a row."""
    rollouts = [each for each in turnstile.read(sys.argv[1]) if each.trainable and each.reward is not None]
    groups: defaultdict[str | None, list[float]] = defaultdict(list)
    for rollout in rollouts:
        groups[rollout.group_id].append(rollout.reward or 0.0)
    for rollout in rollouts:
        rewards = groups[rollout.group_id]
        advantage = ((rollout.reward or 0.0) - sum(rewards) / len(rewards)) / len(rollout.sequences)
        for sequence in rollout.sequences:
            ids = sequence.token_ids.tolist()  # int32[T]
            mask = sequence.loss_mask_T()  # int8[T], 1 where trained
            logprobs = sequence.logprobs_T(fill=0.0)  # float32[T], entry i is about token i
            assert len(ids) == len(mask) == len(logprobs)
            print(f"{sequence.sequence_id} T={len(ids)} trained={sum(mask)} advantage={advantage:+.3f}")


if __name__ == "__main__":
    main()
