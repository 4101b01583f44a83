"""One GRPO step of TRL on agents that talk to a live Turnstile, and the same step on damaged copies of what they left.

Runs inside the environment of TRL. In: {"url": the server, "model": the engine's weights, "tokenizer": its folder}.
Out: {"step": figures, "rows": how the rows look, "damaged": {name: difference}}.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from datasets import Dataset
from openai import OpenAI
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

import turnstile
from turnstile.integrations.trl import reward, rollout_func, waiting_rollout_func

DIFFERENCE = "sampling/sampling_logp_difference/mean"
SIZE = 2


def talk(rollout: Any, prompt: Any) -> float:
    """An ordinary agent: three turns, the middle one after a tool's result."""
    with OpenAI(base_url=rollout.openai_base_url, api_key=rollout.agent_key) as agent:
        messages = [{"role": "user", "content": str(prompt)}]
        for follow in ("The tool says 4.", "Are you sure?", ""):
            said = agent.chat.completions.create(model="tiny", messages=messages, max_tokens=20, temperature=1.0)
            text = said.choices[0].message.content
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": follow}]
    return float(len(text) % 7)


def step(said: dict[str, str], source: Any, prompts: list[str], temperature: float = 1.0) -> dict[str, Any]:
    """What TRL logs of one step from the engine's own weights."""
    model = AutoModelForCausalLM.from_pretrained(said["model"], dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(said["tokenizer"], padding_side="left")
    tokenizer.pad_token = tokenizer.eos_token
    before = [each.detach().clone() for each in model.parameters()]
    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            logging_steps=1,
            per_device_train_batch_size=SIZE * len(prompts),
            num_generations=SIZE,
            steps_per_generation=1,
            max_steps=1,
            max_completion_length=256,
            learning_rate=1e-3,
            beta=0.0,
            temperature=temperature,
            loss_type="dapo",
            scale_rewards="none",
            gradient_checkpointing=False,
            shuffle_dataset=False,
        )
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            reward_funcs=[reward],
            rollout_func=source,
        )
        # As with an engine of vLLM's, so that the recorded log-probabilities enter the loss; there is none to sync.
        trainer.use_vllm = True
        trainer.vllm_generation = SimpleNamespace(sync_weights=lambda: None)
        trainer._last_loaded_step = -1
        trainer.train()
    logged = {name: value for each in trainer.state.log_history for name, value in each.items()}
    moved = max(float((a - b).abs().max()) for a, b in zip(before, model.parameters(), strict=True))
    return {**{name: value for name, value in logged.items() if "sampling" in name or name == "reward"}, "moved": moved}


def damaged(rows: dict[str, list[Any]]) -> dict[str, dict[str, list[Any]]]:
    """What recorders get wrong, in copies."""

    def with_ids(change: Callable[[list[int]], None]) -> dict[str, list[Any]]:
        copied = copy.deepcopy(rows)
        for ids in copied["prompt_ids"]:
            change(ids)
        return copied

    def far(ids: list[int]) -> None:
        ids[3] = (ids[3] + 777) % 40000 + 100

    def last(ids: list[int]) -> None:
        ids[-1] = (ids[-1] + 777) % 40000 + 100

    shifted = copy.deepcopy(rows)
    shifted["logprobs"] = [[*each[1:], 0.0] for each in shifted["logprobs"]]
    observed = copy.deepcopy(rows)
    for ids, mask in zip(observed["completion_ids"], observed["env_mask"], strict=True):
        at = mask.index(0)
        ids[at + 2] = (ids[at + 2] + 777) % 40000 + 100
    return {
        "far prompt id": with_ids(far),
        "last prompt id": with_ids(last),
        "shifted by one": shifted,
        "an id of what the tool said": observed,
    }


def main() -> None:
    said = json.loads(sys.stdin.readline())
    torch.set_num_threads(1)
    seen: list[dict[str, list[Any]]] = []
    prompts = ["What is 2 + 2?", "Name a colour."]
    with turnstile.Client(said["url"]) as client:
        live = rollout_func(client, talk, workers=2)

        def recording(asked: Any, trainer: Any) -> dict[str, list[Any]]:
            seen.append(live(asked, trainer))
            return copy.deepcopy(seen[-1])

        first = step(said, recording, prompts)
        rows = seen[0]
        group_ids = []
        for rollout_id in rows["rollout_id"]:
            group_id = client.trajectory(rollout_id).group_id
            group_ids += [group_id] if group_id not in group_ids else []
        waited = step(said, waiting_rollout_func(client, timeout_s=30.0), group_ids)
    differences = {name: step(said, _giving(each), prompts)[DIFFERENCE] for name, each in damaged(rows).items()}
    differences["temperature 0.7 in the trainer"] = step(said, _giving(rows), prompts, 0.7)[DIFFERENCE]
    shapes = {
        "rewards": rows["turnstile_reward"],
        "groups": len(group_ids),
        "trained": [sum(each) for each in rows["env_mask"]],
        "tools": [len(each) - sum(each) for each in rows["env_mask"]],
    }
    print(json.dumps({"step": first, "waited": waited, "rows": shapes, "damaged": differences}))


def _giving(rows: dict[str, list[Any]]) -> Any:
    return lambda prompts, trainer: copy.deepcopy(rows)


main()
