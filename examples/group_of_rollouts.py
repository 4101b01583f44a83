"""Several rollouts of one task side by side, each scored, then read back as rows for a trainer.

turnstile serve --engine embedded --store runs
python examples/group_of_rollouts.py [http://127.0.0.1:7000]
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

import turnstile

QUESTION = "Name a colour of the sea. One word."
SAMPLES = 4


def play(client: turnstile.Client, sample: int) -> str:
    """One rollout: an agent answers, and is scored by what it said."""
    with client.rollout(group_id="colours", task_id="sea", sample_index=sample) as rollout:
        with OpenAI(base_url=rollout.openai_base_url, api_key=rollout.agent_key) as agent:
            model = agent.models.list().data[0].id
            said = agent.chat.completions.create(
                model=model, messages=[{"role": "user", "content": QUESTION}], max_tokens=8
            )
        text = said.choices[0].message.content or ""
        rollout.finish(reward=1.0 if "blue" in text.lower() else 0.0)
    return rollout.rollout_id


def main() -> None:
    """Run the group, then show each row as a trainer would take it."""
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7000"
    with turnstile.Client(url) as client, ThreadPoolExecutor(SAMPLES) as pool:
        for rollout_id in pool.map(lambda sample: play(client, sample), range(SAMPLES)):
            trajectory = client.trajectory(rollout_id)
            for sequence in trajectory.sequences:
                trained = sum(sequence.loss_mask_T())
                print(
                    f"{sequence.sequence_id}: {len(sequence.token_ids)} tokens, {trained} trained,"
                    f" reward {trajectory.reward}, log-probability {sum(sequence.logprobs_T(fill=0.0)):.2f}"
                )


if __name__ == "__main__":
    main()
